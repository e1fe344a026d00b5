// Records a change and follows it to its fate: API_URL=http://127.0.0.1:8000 API_TOKEN=… node dist/example.js
// The types are made from the API's own document (`make typescript-client`), so a wrong name does not compile.

import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Problem = components["schemas"]["ProblemBody"];

const { API_URL: url = "http://127.0.0.1:8000", API_TOKEN: token = "" } = process.env;
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });

function refused(problem: Problem | undefined): Error {
  return new Error(`${problem?.title ?? "no answer"}: ${problem?.detail ?? ""} ${problem?.action ?? ""}`);
}

/** Repeat it with the same key if no answer arrives: it takes effect once. */
async function submit(key: string): Promise<components["schemas"]["Accepted"]> {
  const { data, error } = await client.POST("/api/changes", {
    params: { header: { "Idempotency-Key": key } },
    body: {
      entity_type: "unit",
      entity_id: "A-101",
      event_type: "unit_status_changed",
      payload: { status: "Clean" },
    },
  });
  if (data === undefined) throw refused(error);
  return data;
}

/** The state of the change so far, which is its fate once it has one. */
async function state(key: string): Promise<string> {
  const { data, error } = await client.GET("/api/changes/{idempotency_key}", {
    params: { path: { idempotency_key: key } },
  });
  if (data === undefined) throw refused(error);
  return data.state;
}

const key = process.argv[2] ?? crypto.randomUUID();
const accepted = await submit(key);
console.log(JSON.stringify({ ...accepted, state: await state(key) }));
