# The worker daemon for NVIDIA GPUs: CUDA 13 and NCCL. Build from the root of the repository:
#   docker build -f deploy/docker/worker-cuda.Dockerfile -t stagewright-worker-cuda .
# Run it with the NVIDIA container runtime, which brings the driver's libraries: a worker for each GPU that it sees, with
#   docker run --restart on-failure --gpus all --shm-size 32g stagewright-worker-cuda [--FLAG=VALUE ...]
# With --gpus device=0 --entrypoint stagewright-worker it is one worker by itself. Flags replace all of CMD's.
FROM nvidia/cuda:13.0.1-devel-ubuntu22.04 AS cuda

FROM debian:bookworm AS build
WORKDIR /src
COPY scripts/apt-packages.txt scripts/requirements-cuda-torch.txt scripts/
RUN apt-get update \
    && grep -vE '^#|^clang-|^shellcheck|^git$' scripts/apt-packages.txt \
       | xargs apt-get install -y --no-install-recommends python3-pip \
    && rm -rf /var/lib/apt/lists/*
# The toolkit has no Debian 12 image of its own; its files depend on no distribution.
COPY --from=cuda /usr/local/cuda-13.0 /usr/local/cuda
ENV PATH=/usr/local/cuda/bin:$PATH
ARG PIP_INDEX_URL
# The torch wheel and the CUDA libraries that it asks for (cuBLAS, cuDNN, NCCL), in their final place: the version that
# scripts/gpu.sh proves.
RUN pip install --no-cache-dir --target /opt/libtorch "$(grep '^torch==' scripts/requirements-cuda-torch.txt)"
COPY CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY protos protos
COPY common common
COPY planner_service planner_service
COPY worker_daemon worker_daemon
COPY clients clients
RUN cmake --preset release -DSTAGEWRIGHT_TORCH_DIR=/opt/libtorch/torch -DSTAGEWRIGHT_WITH_CUDA=ON \
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
COPY --from=build /opt/libtorch/nvidia /opt/libtorch/nvidia
COPY --from=build /src/build/release/bin/stagewright-worker /usr/local/bin/
COPY deploy/docker/worker-per-gpu.sh /usr/local/bin/stagewright-worker-per-gpu
# The worker names libcudart itself. It was linked with the toolkit's, whose folder is not in this image; the wheel's copy, like
# those of the other libraries of CUDA, has a folder that the worker's run path does not know.
RUN printf '%s\n' /opt/libtorch/nvidia/*/lib > /etc/ld.so.conf.d/libtorch.conf && ldconfig
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001
WORKDIR /var/lib/stagewright
VOLUME /var/lib/stagewright
EXPOSE 9071
ENTRYPOINT ["stagewright-worker-per-gpu"]
CMD ["--planner=stagewright-planner:7070", "--metrics-listen=0.0.0.0:9071", "--work-dir=/var/lib/stagewright", \
     "--tls-cert=/etc/stagewright/tls/tls.crt", "--tls-key=/etc/stagewright/tls/tls.key", \
     "--tls-ca=/etc/stagewright/tls/ca.crt"]
