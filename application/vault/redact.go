package vault

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Redact returns the events with "[REDACTED]" in the place of sealed values whose key was
// destroyed. It opens no value: those with a key stay sealed. It fails if the key store is
// unavailable, so that no reader takes an erased value for one that still exists. Without a
// key store it returns the events unchanged.
func (v *Vault) Redact(ctx context.Context, events []event.Recorded) ([]event.Recorded, error) {
	if v.Keys == nil {
		return events, nil
	}
	found := make(map[int][]shredding.Sealed)
	var ids []ports.SubjectKeyID
	seen := map[ports.SubjectKeyID]bool{}
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
			if !seen[id] {
				seen[id] = true
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
	states, err := v.lookUp(ctx, ids)
	if err != nil {
		return nil, err
	}
	out, redacted := events, 0
	for i, all := range found {
		isErased := func(s shredding.Sealed) bool {
			id, err := keyOf(events[i].Partition, s)
			return err == nil && states[id].known.State == shredding.KeyDestroyed
		}
		if !slices.ContainsFunc(all, isErased) {
			continue
		}
		if &out[0] == &events[0] {
			out = slices.Clone(events)
		}
		if out[i].Payload, err = shredding.OpenFound(make([]byte, 0, len(events[i].Payload)), events[i].Payload, all, func(n int) (shredding.Answer, error) {
			if !isErased(all[n]) {
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

// keyOf returns the id of the key of a sealed value in an event of a partition.
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

// Projection wraps a handler that keeps copies of personal values, so that it gets the
// events with erased values redacted: a read model rebuilt after an erasure then equals
// the one that the erasure left.
func Projection(h ports.ProjectionHandler, v *Vault) ports.ProjectionHandler {
	return redactingHandler{h, v}
}

type redactingHandler struct {
	ports.ProjectionHandler
	vault *Vault
}

// Apply implements ports.ProjectionHandler.
func (p redactingHandler) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	redacted, err := p.vault.Redact(ctx, b.Events)
	if err != nil {
		return err
	}
	b.Events = redacted
	return p.ProjectionHandler.Apply(ctx, tx, b)
}
