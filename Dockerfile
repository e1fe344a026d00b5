# One image for every role: `docker run IMAGE api`, `… relay`, `… worker`, `… migrate`, `… simulator`.

FROM python:3.11.15-slim AS build
WORKDIR /src
RUN python -m venv /app
COPY requirements.txt ./
RUN /app/bin/pip install --no-cache-dir --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE worker.py starter.py ./
COPY activities ./activities
COPY migrations ./migrations
COPY oldhost_simulator ./oldhost_simulator
COPY oldhost_sync ./oldhost_sync
COPY workflows ./workflows
RUN /app/bin/pip install --no-cache-dir --no-deps .

FROM python:3.11.15-slim
# /data is for the simulator's state; the other roles keep nothing.
RUN useradd --system --uid 10001 --home-dir /data --create-home sync
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /data
VOLUME /data
USER 10001
ENTRYPOINT ["oldhost-sync"]
CMD ["--help"]
