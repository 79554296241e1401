package chart
import "sigs.k8s.io/controller-runtime/pkg/client"
func ckey(n string) client.ObjectKey { return client.ObjectKey{Name:n} }
