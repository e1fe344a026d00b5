# One image for every role: `docker run IMAGE api`, `… relay`, `… worker`, `… migrate`, `… simulator`.
#
# Every package is locked by hash, also the one that builds (`make lock`). To pin the base by its digest, too, which a version's tag does not
# do: `docker buildx imagetools inspect python:3.11.15-slim` tells it; write it behind the tag, `@sha256:…`, in both stages.

FROM python:3.11.15-slim AS build
WORKDIR /src
RUN python -m venv /app && python -m venv /build
COPY requirements.txt requirements-build.txt ./
RUN /app/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements.txt \
    && /build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements-build.txt
COPY pyproject.toml README.md LICENSE worker.py starter.py ./
COPY activities ./activities
COPY migrations ./migrations
COPY oldhost_simulator ./oldhost_simulator
COPY oldhost_sync ./oldhost_sync
COPY workflows ./workflows
# Nothing is fetched any more.
RUN /build/bin/pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /app/bin/pip install --no-cache-dir --no-index --no-deps /wheel/*.whl

FROM python:3.11.15-slim
# /data is for the simulator's state, /settlement for the relays' settlement files; nothing else is kept. A new volume takes the folder's owner.
RUN useradd --system --uid 10001 --home-dir /data --create-home sync && install --directory --owner=sync /settlement
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /data
VOLUME /data
USER 10001
ENTRYPOINT ["oldhost-sync"]
CMD ["--help"]
