package vault

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Redact gives the events with "[REDACTED]" in the place of sealed values whose key was
// destroyed. All others stay sealed, and nothing is opened. The key store is asked once
// for all of them; what cannot be asked is an error, so that nobody takes an erased
// value for one that is still there. Without a key store the events are as they were.
func (v *Vault) Redact(ctx context.Context, events []event.Recorded) ([]event.Recorded, error) {
	if v.Keys == nil {
		return events, nil
	}
	found := make(map[int][]shredding.Sealed)
	var ids []ports.SubjectKeyID
	asked := map[ports.SubjectKeyID]bool{}
	for i := range events {
		if !shredding.HasSealed(events[i].Payload) {
			continue
		}
		all, err := shredding.FindSealed(events[i].Payload)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			id, err := keyOf(events[i].Partition, s)
			if err != nil {
				return nil, err
			}
			if !asked[id] {
				asked[id] = true
				ids = append(ids, id)
			}
		}
		found[i] = all
	}
	if len(ids) == 0 {
		return events, nil
	}
	if err := v.ready(); err != nil {
		return nil, err
	}
	states, err := v.known(ctx, ids)
	if err != nil {
		return nil, err
	}
	out, redacted := events, 0
	for i, all := range found {
		gone := func(s shredding.Sealed) bool {
			id, err := keyOf(events[i].Partition, s)
			return err == nil && states[id].known.State == shredding.KeyDestroyed
		}
		if !slices.ContainsFunc(all, gone) {
			continue
		}
		if &out[0] == &events[0] {
			out = slices.Clone(events)
		}
		if out[i].Payload, err = shredding.OpenFound(make([]byte, 0, len(events[i].Payload)), events[i].Payload, all, func(n int) (shredding.Answer, error) {
			if !gone(all[n]) {
				return shredding.Kept(all[n]), nil
			}
			redacted++
			return shredding.Destroyed(), nil
		}); err != nil {
			return nil, err
		}
	}
	v.Observer.Redacted(redacted)
	return out, nil
}

// keyOf names the key of a value that stands in an event of a partition.
func keyOf(p event.PartitionID, s shredding.Sealed) (ports.SubjectKeyID, error) {
	h, err := s.Envelope.Header()
	if err != nil {
		return ports.SubjectKeyID{}, err
	}
	if s.Origin != nil {
		p = s.Origin.Partition
	}
	return ports.SubjectKeyID{Partition: p, Subject: s.Subject, Class: h.Class}, nil
}

// Projection hands a handler that keeps copies of personal values the events as readers
// are shown them once persons were erased, so that a read model that is built after an
// erasure is the one that the erasure left.
func Projection(h ports.ProjectionHandler, v *Vault) ports.ProjectionHandler {
	return redactingHandler{h, v}
}

type redactingHandler struct {
	ports.ProjectionHandler
	vault *Vault
}

// Apply implements ports.ProjectionHandler.
func (p redactingHandler) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	shown, err := p.vault.Redact(ctx, b.Events)
	if err != nil {
		return err
	}
	b.Events = shown
	return p.ProjectionHandler.Apply(ctx, tx, b)
}
