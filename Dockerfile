# For who has a Docker daemon; make image needs none and gives the same content.
#
#   docker build --build-arg VERSION=v0.1.0 --build-arg COMMIT=$(git rev-parse HEAD) -t cilium-pool-operator:v0.1.0 .

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY pkg pkg
ARG VERSION=dev
ARG COMMIT=
ARG TARGETOS TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" \
    -o /cilium-pool-operator ./cmd/cilium-pool-operator

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /cilium-pool-operator /cilium-pool-operator
USER 65532:65532
ENTRYPOINT ["/cilium-pool-operator"]
