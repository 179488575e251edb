package conformance_test

import (
	"context"
	"runtime"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// withoutSubjects takes everything sealed out of a copy of the request.
func withoutSubjects(r *ports.AppendRequest) {
	r.Events = slices.Clone(r.Events)
	for i := range r.Events {
		r.Events[i].Sealed = nil
	}
	if r.Intent != nil {
		w := *r.Intent
		w.Sealed = nil
		r.Intent = &w
	}
}

func ignoreKeys(w *wrapper) conformance.Store { return changed(w, withoutSubjects) }

// keysOnly is a request that demands nothing but its keys.
func keysOnly(r ports.AppendRequest) ports.AppendRequest {
	if len(r.Events) == 0 || r.Intent != nil || r.Idempotency != nil {
		return ports.AppendRequest{Partition: r.Partition}
	}
	return r
}

// checkKeysTooEarly checks what it can before the lock and writes long afterwards.
func checkKeysTooEarly(w *wrapper) conformance.Store {
	return &appendBroken{w, func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
		ids, versions := keysOf(keysOnly(r))
		keys, release := w.keys.LeaseKeys(ids)
		release()
		for i, k := range keys {
			if k.State != shredding.KeyActive || k.Active != versions[i] {
				return w.Append(ctx, r)
			}
		}
		for range 1000 {
			runtime.Gosched()
		}
		if len(keys) > 0 {
			withoutSubjects(&r)
		}
		return w.Append(ctx, r)
	}}
}

// keysFirst refuses a request with destroyed keys before the log checks its idempotency key.
func keysFirst(w *wrapper) conformance.Store {
	return &appendBroken{w, func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
		ids, _ := keysOf(r)
		keys, release := w.keys.LeaseKeys(ids)
		release()
		for _, k := range keys {
			if k.State != shredding.KeyActive {
				return ports.AppendResult{}, shredding.Erased("")
			}
		}
		return w.Append(ctx, r)
	}}
}

func keysOf(r ports.AppendRequest) (ids []ports.SubjectKeyID, versions []uint32) {
	add := func(sealed []event.SealedSubject) {
		for _, s := range sealed {
			ids = append(ids, ports.SubjectKeyID{Partition: r.Partition, Subject: shredding.Subject(s.Subject), Class: shredding.KeyClass(s.KeyClass)})
			versions = append(versions, s.KeyVersion)
		}
	}
	for i := range r.Events {
		add(r.Events[i].Sealed)
	}
	if r.Intent != nil {
		add(r.Intent.Sealed)
	}
	return ids, versions
}

func forgetIntentSubjects(w *wrapper) conformance.Store {
	return changed(w, func(r *ports.AppendRequest) {
		if r.Intent != nil {
			in := *r.Intent
			in.Sealed = nil
			r.Intent = &in
		}
	})
}
