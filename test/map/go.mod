// The address map in a real browser. A module of its own, so that what drives
// the browser stays out of the operator's go.mod.
module github.com/cilium-pool/cilium-pool-operator/test/map

go 1.26.0

replace github.com/cilium-pool/cilium-pool-operator => ../..

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.22.1
	github.com/cilium-pool/cilium-pool-operator v0.0.0
	github.com/google/go-cmp v0.7.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
)
