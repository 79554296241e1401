package clusterread

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
)

// UnclearError explains why the IPAM of a cluster is not clear, though its objects were read.
type UnclearError struct{ reason string }

func (e UnclearError) Error() string { return e.reason }

func unclear(format string, args ...any) error { return UnclearError{fmt.Sprintf(format, args...)} }

// CannotRead explains why the API server could not be read, and suggests a check.
func CannotRead(host string, err error) error {
	if errors.As(err, &UnclearError{}) { // it was read
		return err
	}
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%w. At %s a CRD of Cilium or of the operator's chart is not installed or was deleted: install it again, or name another cluster (--context)", err, host)
	}
	return fmt.Errorf("cannot read from the API server at %s: %w", host, err)
}
