// Command cilium-cni is Cilium's CNI plugin, as its module ships it.
package main

import (
	"runtime"

	"github.com/cilium/cilium/plugins/cilium-cni/cmd"
)

func main() {
	// The plugin moves its thread between network namespaces.
	runtime.LockOSThread()
	cmd.PluginMain()
}
