# Training and the arm on Debian 12, with ROS 2 Jazzy from wheels (docs/containers.md).
#   docker build --tag vdl_ros .

# Of Debian's packages no version is chosen: an image gets their security updates when it is built.
# hadolint global ignore=DL3008

FROM debian:bookworm-slim AS runtime
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      ca-certificates libegl1 libgl1 libgl1-mesa-dri python3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 --shell /bin/bash vdl

FROM runtime AS tools
RUN apt-get update \
 && apt-get install --yes --no-install-recommends build-essential python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*

# A machine to develop on, for .devcontainer: the set-up installs there what it misses, by sudo.
FROM tools AS development
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git less openssh-client sudo \
 && rm -rf /var/lib/apt/lists/* \
 && echo 'vdl ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/vdl
USER 1000

# A stage of its own, so that a change of the sources does not install the libraries again.
FROM tools AS libraries
# An index with another build of PyTorch than the one for CPUs.
ARG VDL_TORCH_INDEX
WORKDIR /opt/vdl_ros
COPY bootstrap bootstrap
RUN python3 bootstrap --no-build

FROM libraries AS workspace
COPY . .
# The user of the image cannot write here, so Python could not keep its bytecode.
RUN python3 bootstrap && .venv/bin/python3 -m compileall -q install

FROM runtime
COPY --from=libraries /opt/vdl_ros/.venv /opt/vdl_ros/.venv
COPY --from=workspace /opt/vdl_ros/build /opt/vdl_ros/build
COPY --from=workspace /opt/vdl_ros/install /opt/vdl_ros/install
COPY . /opt/vdl_ros
# A new volume that is mounted at one of these folders gets its owner.
RUN install --directory --owner vdl --group vdl /home/vdl/.ros /home/vdl/runs \
 && echo 'source /opt/vdl_ros/setup.bash' >> /home/vdl/.bashrc
USER 1000
WORKDIR /home/vdl
# As Ctrl-C: the learner saves.
STOPSIGNAL SIGINT
ENTRYPOINT ["/bin/bash", "-c", "source /opt/vdl_ros/setup.bash && exec \"$@\"", "bash"]
CMD ["ros2", "launch", "vdl_ros", "train.launch.py"]
