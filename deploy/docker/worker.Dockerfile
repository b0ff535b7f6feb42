# The worker daemon for CPUs. Build from the root of the repository:
#   docker build -f deploy/docker/worker.Dockerfile -t stagewright-worker .
# Where pip's default index has only CUDA builds of torch, name an index with CPU builds by --build-arg PIP_INDEX_URL=...
FROM debian:bookworm AS build
WORKDIR /src
COPY scripts/apt-packages.txt scripts/requirements.txt scripts/
RUN apt-get update \
    && grep -vE '^#|^clang-|^shellcheck|^git$' scripts/apt-packages.txt \
       | xargs apt-get install -y --no-install-recommends python3-pip \
    && rm -rf /var/lib/apt/lists/*
ARG PIP_INDEX_URL
# Its final place already, because the worker finds it there by its run path.
RUN pip install --no-cache-dir --no-deps --target /opt/libtorch "$(grep '^torch==' scripts/requirements.txt)"
COPY CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY protos protos
COPY common common
COPY planner_service planner_service
COPY worker_daemon worker_daemon
COPY clients clients
RUN cmake --preset release -DSTAGEWRIGHT_TORCH_DIR=/opt/libtorch/torch -DSTAGEWRIGHT_WITH_CUDA=OFF \
      -DSTAGEWRIGHT_BUILD_TESTS=OFF \
    && cmake --build --preset release --target stagewright-worker \
    && strip build/release/bin/stagewright-worker \
    && rm -f /opt/libtorch/torch/lib/libtorch_python.so /opt/libtorch/torch/lib/*_test.so

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
       ca-certificates libabsl20220623 libcivetweb1 libcurl4 libgrpc++1.51 libgrpc29 libprometheus-cpp-core1.0 \
       libprometheus-cpp-pull1.0 libprotobuf32 libssl3 libucx0 libyaml-cpp0.7 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/stagewright --create-home stagewright
COPY --from=build /opt/libtorch/torch/lib /opt/libtorch/torch/lib
COPY --from=build /src/build/release/bin/stagewright-worker /usr/local/bin/
USER 10001
WORKDIR /var/lib/stagewright
VOLUME /var/lib/stagewright
EXPOSE 9071
ENTRYPOINT ["stagewright-worker"]
CMD ["--planner", "stagewright-planner:7070", "--devices", "cpu:1", "--metrics-listen", "0.0.0.0:9071", \
     "--work-dir", "/var/lib/stagewright", \
     "--tls-cert", "/etc/stagewright/tls/tls.crt", "--tls-key", "/etc/stagewright/tls/tls.key", \
     "--tls-ca", "/etc/stagewright/tls/ca.crt"]
