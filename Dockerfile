# For who has a Docker daemon; make image needs none and gives the same content.
#
#   docker build --build-arg VERSION=v0.1.0 --build-arg COMMIT=$(git rev-parse HEAD) -t cilium-pool-operator:v0.1.0 .

# The version is the toolchain of go.mod. The digest is of the index of all platforms, the same as Cilium v1.20.2 builds with.
FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:3c3e25a4da13fd0478eed2df1eb35a0e667094a7124d3993a6a1d30f71c17e79 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY api api
RUN go mod download
COPY cmd cmd
COPY pkg pkg
ARG VERSION=dev
ARG COMMIT=
ARG TARGETOS TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" \
    -o / ./cmd/cilium-pool-operator ./cmd/cilium-pool-ipam
COPY LICENSE LICENSE
COPY hack/release hack/release
RUN go run -C hack/release . licenses -root /src -platform $TARGETOS/$TARGETARCH -out /licenses

# The binaries are static. The operator trusts the API server by the certificate mounted into each pod: it needs no file beside it.
FROM scratch
COPY --from=build /cilium-pool-operator /cilium-pool-ipam /
COPY --from=build /licenses /licenses
USER 65532:65532
ENTRYPOINT ["/cilium-pool-operator"]
