package world

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// API is an API server for the kinds that matter here. Stored objects are never modified, only
// replaced, so everybody may share them.
type API struct {
	now     func() time.Time
	version uint64
	made    int // UIDs given out
	objects [kindCount]map[string]client.Object
	// history holds every version of every object of a kind, in order.
	history [kindCount][]Version
	equal   conversion.Equalities
	// stored, if set, is called with each version.
	stored func(Version)
}

// Version is one version of one object.
type Version struct {
	Kind Kind
	Key  string
	// Version is the resourceVersion; if New is nil, that of the deletion.
	Version  uint64
	Old, New client.Object // nil: there is none
}

// NewAPI returns an API server without objects.
func NewAPI(now func() time.Time) *API {
	a := &API{now: now, equal: equality.Semantic.Copy()}
	if err := a.equal.AddFunc(func(x, y iputil.Prefix) bool { return x == y }); err != nil {
		panic(err)
	}
	for k := range a.objects {
		a.objects[k] = map[string]client.Object{}
	}
	return a
}

// Get returns the stored object, or nil. It must not be modified.
func (a *API) Get(k Kind, key string) client.Object { return a.objects[k][key] }

// Keys returns the keys of all objects of a kind, sorted.
func (a *API) Keys(k Kind) []string { return sortedKeys(a.objects[k]) }

// Create stores a new object and returns it as stored.
func (a *API) Create(in client.Object) (client.Object, error) {
	k, key := kindOf(in), keyOf(in)
	if in.GetResourceVersion() != "" {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	if a.objects[k][key] != nil {
		return nil, apierrors.NewAlreadyExists(k.resource(), key)
	}
	obj := in.DeepCopyObject().(client.Object)
	if k.custom() {
		copyStatus(obj, k.empty())
		obj.SetGeneration(1)
	}
	setDefaults(obj)
	a.made++
	obj.SetUID(types.UID(fmt.Sprintf("uid-%d", a.made)))
	obj.SetCreationTimestamp(metav1.NewTime(a.now().Truncate(time.Second)))
	obj.SetDeletionTimestamp(nil)
	a.put(k, key, nil, obj)
	return obj, nil
}

// Update replaces an object, or with status only its status.
func (a *API) Update(in client.Object, status bool) (client.Object, error) {
	k, key := kindOf(in), keyOf(in)
	old := a.objects[k][key]
	if old == nil {
		return nil, apierrors.NewNotFound(k.resource(), key)
	}
	if uid := in.GetUID(); uid != "" && uid != old.GetUID() {
		return nil, conflict(k, key, "Precondition failed: UID in precondition: "+string(uid))
	}
	switch version := in.GetResourceVersion(); {
	case version == "" && k.custom():
		return nil, apierrors.NewInvalid(k.group(), key, field.ErrorList{field.Invalid(
			field.NewPath("metadata", "resourceVersion"), version, "must be specified for an update")})
	case version != "" && version != old.GetResourceVersion():
		return nil, conflict(k, key, "the object has been modified; please apply your changes to the latest version and try again")
	}
	obj := in.DeepCopyObject().(client.Object)
	setDefaults(obj)
	if status {
		obj = withStatus(old, obj)
	} else if err := keepServers(k, old, obj); err != nil {
		return nil, err
	} else if err := keepMaskSizes(old, obj); err != nil {
		return nil, err
	}
	return a.replace(k, key, old, obj), nil
}

// setDefaults applies the CRDs' defaults.
func setDefaults(obj client.Object) {
	if pool, ok := obj.(*v1alpha1.PodIPPool); ok {
		pool.Spec.ReservedBlockPolicy = cmp.Or(pool.Spec.ReservedBlockPolicy, v1alpha1.SkipReservedBlocks)
	}
}

// withStatus returns old with the status of obj.
func withStatus(old, obj client.Object) client.Object {
	out := shallow(old)
	copyStatus(out, obj)
	truncateTimes(out)
	return out
}

// keepServers copies the fields that an update cannot change.
func keepServers(k Kind, old, obj client.Object) error {
	obj.SetUID(old.GetUID())
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	obj.SetGeneration(old.GetGeneration())
	if k != KindPod { // only the world changes pods, in one go
		copyStatus(obj, old)
	}
	if old.GetDeletionTimestamp() != nil {
		for _, f := range obj.GetFinalizers() {
			if !contains(old.GetFinalizers(), f) {
				return apierrors.NewInvalid(k.group(), keyOf(obj), field.ErrorList{field.Forbidden(
					field.NewPath("metadata", "finalizers"), "no new finalizers can be added if the object is being deleted")})
			}
		}
	}
	return nil
}

// replace stores an admitted version with a change.
func (a *API) replace(k Kind, key string, old, obj client.Object) client.Object {
	obj.SetResourceVersion(old.GetResourceVersion())
	if a.equal.DeepEqual(old, obj) && !opensPool(old, obj) {
		return old
	}
	if k.custom() && !a.sameSpec(old, obj) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 && k != KindPod {
		a.remove(k, key, old)
		return obj
	}
	a.put(k, key, old, obj)
	return obj
}

// opensPool reports whether a change creates an empty pool in a CiliumNode: API servers distinguish it from none.
func opensPool(old, obj client.Object) bool {
	before, _ := old.(*ciliumv2.CiliumNode)
	after, ok := obj.(*ciliumv2.CiliumNode)
	return ok && before.Spec.IPAM.Pool == nil && after.Spec.IPAM.Pool != nil
}

// Delete deletes an object, or marks it as being deleted if it has finalizers.
func (a *API) Delete(k Kind, key string, uid *types.UID, version *string) error {
	old := a.objects[k][key]
	switch {
	case old == nil:
		return apierrors.NewNotFound(k.resource(), key)
	case uid != nil && *uid != old.GetUID():
		return conflict(k, key, "Precondition failed: UID in precondition: "+string(*uid))
	case version != nil && *version != old.GetResourceVersion():
		return conflict(k, key, "Precondition failed: ResourceVersion in precondition: "+*version)
	case len(old.GetFinalizers()) == 0:
		a.remove(k, key, old)
		return nil
	case old.GetDeletionTimestamp() != nil:
		return nil
	}
	a.terminate(k, key, old)
	return nil
}

// terminate marks an object as being deleted.
func (a *API) terminate(k Kind, key string, old client.Object) {
	obj := shallow(old)
	at := metav1.NewTime(a.now().Truncate(time.Second))
	obj.SetDeletionTimestamp(&at)
	if k.custom() {
		var none int64
		obj.SetDeletionGracePeriodSeconds(&none)
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	a.put(k, key, old, obj)
}

func (a *API) put(k Kind, key string, old, obj client.Object) {
	a.version++
	obj.SetResourceVersion(strconv.FormatUint(a.version, 10))
	a.objects[k][key] = obj
	a.log(Version{Kind: k, Key: key, Version: a.version, Old: old, New: obj})
}

func (a *API) remove(k Kind, key string, old client.Object) {
	a.version++
	delete(a.objects[k], key)
	// The watch delivers the last state with the version of the deletion.
	last := shallow(old)
	last.SetResourceVersion(strconv.FormatUint(a.version, 10))
	a.log(Version{Kind: k, Key: key, Version: a.version, Old: last})
}

func (a *API) log(v Version) {
	a.history[v.Kind] = append(a.history[v.Kind], v)
	if a.stored != nil {
		a.stored(v)
	}
}

// Versions returns the number of versions of the kind that has the most.
func (a *API) Versions() int {
	most := 0
	for _, h := range a.history {
		most = max(most, len(h))
	}
	return most
}

// at returns the objects of a kind after the given number of its versions.
func (a *API) at(k Kind, versions int) map[string]client.Object {
	if versions == len(a.history[k]) {
		return a.objects[k]
	}
	state := map[string]client.Object{}
	for _, v := range a.history[k][:versions] {
		if v.New == nil {
			delete(state, v.Key)
		} else {
			state[v.Key] = v.New
		}
	}
	return state
}

func conflict(k Kind, key, message string) error {
	return apierrors.NewConflict(k.resource(), key, fmt.Errorf("%s", message))
}

// Patch applies a merge patch (RFC 7386), or for a Node a strategic merge patch, to an object
// or, with status, to its status.
func (a *API) Patch(k Kind, key string, kind types.PatchType, body []byte, status bool) (client.Object, error) {
	old := a.objects[k][key]
	if old == nil {
		return nil, apierrors.NewNotFound(k.resource(), key)
	}
	doc, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	switch kind {
	case types.MergePatchType:
		doc, err = mergePatch(doc, body)
	case types.StrategicMergePatchType:
		doc, err = strategicpatch.StrategicMergePatch(doc, body, corev1.Node{})
	default:
		panic("no such patch here: " + string(kind))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj := k.empty()
	if err := json.Unmarshal(doc, obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return a.Update(obj, status)
}

func mergePatch(doc, patch []byte) ([]byte, error) {
	var to, from any
	if err := json.Unmarshal(doc, &to); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(patch, &from); err != nil {
		return nil, err
	}
	return json.Marshal(merge(to, from))
}

func merge(to, from any) any {
	changes, ok := from.(map[string]any)
	if !ok {
		return from
	}
	fields, ok := to.(map[string]any)
	if !ok {
		fields = map[string]any{}
	}
	for name, value := range changes {
		if value == nil {
			delete(fields, name)
		} else {
			fields[name] = merge(fields[name], value)
		}
	}
	return fields
}
