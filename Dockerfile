# One image for every role: `docker run IMAGE api`, `… relay`, `… worker`, `… migrate`, `… simulator`.
#
# Every package is locked by hash, also the one that builds (`make lock`), and the base by its digest, which always means the same build.
# For another base, such as a newer build of the same version or a copy in a registry of yours: `--build-arg PYTHON_IMAGE=…@sha256:…`
# (`docker buildx imagetools inspect python:3.11.15-slim` tells the newest digest).
ARG PYTHON_IMAGE=python:3.11.15-slim@sha256:90744cff8f32887f075c47d747a173ff333e9e98801667af93c357fa9f5e28ff

FROM ${PYTHON_IMAGE} AS build
ARG VERSION=1.0.0
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
# The label must not say another version than the code. What the image holds is written into it: `make sbom` shows it.
COPY deploy/bill_of_materials.py ./
RUN /app/bin/python -I -c "from importlib.metadata import version; import sys; \
    v = version('oldhost-sync'); v == '$VERSION' or sys.exit(f'this is version {v}, not $VERSION')" \
    && /app/bin/python -I bill_of_materials.py > /app/bill-of-materials.json

FROM ${PYTHON_IMAGE}
ARG VERSION=1.0.0
ARG REVISION=unknown
ARG PYTHON_IMAGE
LABEL org.opencontainers.image.title="oldhost-sync" \
    org.opencontainers.image.description="Keeps a single-connection, nonce-guarded legacy host in step with a fast application" \
    org.opencontainers.image.version="$VERSION" \
    org.opencontainers.image.revision="$REVISION" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.base.name="$PYTHON_IMAGE"
# /data is for the simulator's state, /settlement for the relays' settlement files; nothing else is kept. A new volume takes the folder's owner.
RUN useradd --system --uid 10001 --home-dir /data --create-home sync && install --directory --owner=sync /settlement
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /data
VOLUME /data
USER 10001
ENTRYPOINT ["oldhost-sync"]
CMD ["--help"]
