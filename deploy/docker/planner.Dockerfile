# The planning service. Build from the root of the repository:
#   docker build -f deploy/docker/planner.Dockerfile -t stagewright-planner .
# It wants its certificate, key and authority in /etc/stagewright/tls (docs/security.md).
FROM debian:bookworm AS build
WORKDIR /src
COPY scripts/apt-packages.txt scripts/
# Compilers and libraries, without the tools that only tests and lints use.
RUN apt-get update \
    && grep -vE '^#|^clang-|^shellcheck|^python3-venv|^git$' scripts/apt-packages.txt \
       | xargs apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY protos protos
COPY common common
COPY planner_service planner_service
COPY clients clients
RUN cmake --preset release -DSTAGEWRIGHT_WITH_WORKER=OFF -DSTAGEWRIGHT_BUILD_TESTS=OFF \
    && cmake --build --preset release \
    && strip build/release/bin/*

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
       ca-certificates libabsl20220623 libcivetweb1 libcurl4 libgrpc++1.51 libgrpc29 libprometheus-cpp-core1.0 \
       libprometheus-cpp-pull1.0 libprotobuf32 libsqlite3-0 libssl3 libyaml-cpp0.7 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/stagewright --create-home stagewright
COPY --from=build /src/build/release/bin/stagewright-planner /src/build/release/bin/stagewright /usr/local/bin/
USER 10001
WORKDIR /var/lib/stagewright
VOLUME /var/lib/stagewright
EXPOSE 7070 9070
ENTRYPOINT ["stagewright-planner"]
CMD ["--listen", "0.0.0.0:7070", "--metrics-listen", "0.0.0.0:9070", "--state", "/var/lib/stagewright/stagewright.db", \
     "--tls-cert", "/etc/stagewright/tls/tls.crt", "--tls-key", "/etc/stagewright/tls/tls.key", \
     "--tls-ca", "/etc/stagewright/tls/ca.crt"]
