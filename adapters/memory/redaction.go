package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Redactions stores requests for redaction and replaces payloads.
type Redactions struct{ *state }

var _ ports.Redactions = (*Redactions)(nil)

var personID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

func cloneRequest(r *ports.RedactionRequest) ports.RedactionRequest {
	out := *r
	out.Pointers, out.Preview, out.Results = slices.Clone(r.Pointers), bytes.Clone(r.Preview), bytes.Clone(r.Results)
	return out
}

// changeRequest runs f on a request with the lock held, and raises its revision.
func (r *Redactions) changeRequest(ctx context.Context, p event.PartitionID, id event.ID, f func(*ports.RedactionRequest) (changed bool, err error)) (ports.RedactionRequest, error) {
	return get(ctx, r.state, func() (ports.RedactionRequest, error) {
		have := r.redactionRequests[id]
		if have == nil || have.Partition != p {
			return ports.RedactionRequest{}, shredding.RedactionNotFound()
		}
		next := cloneRequest(have)
		changed, err := f(&next)
		if err != nil {
			return ports.RedactionRequest{}, err
		}
		if changed {
			next.Revision, next.Attempts, next.LastError, next.UpdatedAt = have.Revision+1, 0, "", r.now()
			*have = cloneRequest(&next)
		}
		return cloneRequest(have), nil
	})
}

// AddRedaction implements ports.Redactions.
func (r *Redactions) AddRedaction(ctx context.Context, n ports.RedactionRequest) (ports.RedactionRequest, error) {
	return get(ctx, r.state, func() (ports.RedactionRequest, error) {
		for _, pointer := range n.Pointers {
			if !strings.HasPrefix(pointer, "/data/") || pointer == "/data/" {
				return n, shredding.RedactionPointerInvalid()
			}
		}
		if have := r.redactionRequests[n.ID]; have != nil {
			if have.Partition != n.Partition || have.Sequence != n.Sequence || !slices.Equal(have.Pointers, n.Pointers) || have.Reason != n.Reason || have.RequestedBy != n.RequestedBy {
				return n, shredding.RedactionDuplicate()
			}
			return cloneRequest(have), nil
		}
		p := r.partitions[n.Partition]
		if p == nil || n.Sequence == 0 || int(n.Sequence) > len(p.events) {
			return n, shredding.RedactionEventNotFound()
		}
		if len(n.Pointers) < 1 || len(n.Pointers) > 64 || n.Reason == "" || len(n.Reason) > 1000 || !personID.MatchString(n.RequestedBy) {
			return n, shredding.RedactionInvalid()
		}
		made := cloneRequest(&ports.RedactionRequest{
			ID: n.ID, TenantID: p.legalEntity.TenantID, Partition: n.Partition, Sequence: n.Sequence, EventID: p.events[n.Sequence-1].ID,
			Pointers: n.Pointers, Reason: n.Reason, State: shredding.RedactionPreviewed, Revision: 1, Scope: n.Scope, Preview: n.Preview,
			RequestedBy: n.RequestedBy, RequestedAt: r.now(), UpdatedAt: r.now(),
		})
		r.redactionRequests[n.ID] = &made
		return cloneRequest(&made), nil
	})
}

// RedactionRequest implements ports.Redactions.
func (r *Redactions) RedactionRequest(ctx context.Context, tenantID string, id event.ID) (ports.RedactionRequest, error) {
	return get(ctx, r.state, func() (ports.RedactionRequest, error) {
		have := r.redactionRequests[id]
		if have == nil || have.TenantID != tenantID {
			return ports.RedactionRequest{}, shredding.RedactionNotFound()
		}
		return cloneRequest(have), nil
	})
}

func byRequestTime(a, b *ports.RedactionRequest) int {
	return cmp.Or(a.RequestedAt.Compare(b.RequestedAt), a.ID.Compare(b.ID))
}

func (r *Redactions) list(ctx context.Context, keep func(*ports.RedactionRequest) bool, order func(a, b *ports.RedactionRequest) int, limit int) ([]ports.RedactionRequest, error) {
	return get(ctx, r.state, func() ([]ports.RedactionRequest, error) {
		out := []ports.RedactionRequest{}
		for _, found := range first(list(maps.Values(r.redactionRequests), keep, order), limit) {
			out = append(out, cloneRequest(found))
		}
		return out, nil
	})
}

// RedactionRequests implements ports.Redactions.
func (r *Redactions) RedactionRequests(ctx context.Context, tenantID string, states []shredding.RedactionState, limit int) ([]ports.RedactionRequest, error) {
	return r.list(ctx, func(q *ports.RedactionRequest) bool {
		return q.TenantID == tenantID && (len(states) == 0 || slices.Contains(states, q.State))
	}, func(a, b *ports.RedactionRequest) int { return byRequestTime(b, a) }, limit)
}

// RedactionRequests implements ports.RedactionReader.
func (s *Audit) RedactionRequests(ctx context.Context, tenantID string, states []shredding.RedactionState, limit int) ([]ports.RedactionRequest, error) {
	return (&Redactions{s.state}).RedactionRequests(ctx, tenantID, states, limit)
}

// RedactionWork implements ports.Redactions.
func (r *Redactions) RedactionWork(ctx context.Context, limit int) ([]ports.RedactionRequest, error) {
	return r.list(ctx, func(q *ports.RedactionRequest) bool {
		return q.State == shredding.RedactionApproved || q.State.CarriedOut() && !q.State.Final()
	}, byRequestTime, limit)
}

// MoveRedaction implements ports.Redactions.
func (r *Redactions) MoveRedaction(ctx context.Context, n ports.RedactionRequest) (ports.RedactionRequest, error) {
	return r.changeRequest(ctx, n.Partition, n.ID, func(q *ports.RedactionRequest) (bool, error) {
		if q.Revision == n.Revision+1 && q.State == n.State && q.EndedBy == n.EndedBy && q.EndReason == n.EndReason {
			return false, nil // a repeat
		}
		if q.Revision != n.Revision {
			return false, shredding.RedactionChanged()
		}
		previews := q.State == shredding.RedactionPreviewed && n.State == shredding.RedactionPreviewed
		if n.State == shredding.RedactionApproved || n.State == shredding.RedactionRedacted || !previews && !q.State.CanBecome(n.State) {
			return false, shredding.RedactionMoveRefused()
		}
		if n.State == shredding.RedactionRejected && (n.EndedBy == "" || strings.EqualFold(n.EndedBy, q.RequestedBy)) {
			return false, shredding.RedactionSamePerson()
		}
		if n.State == shredding.RedactionPreviewed {
			q.Scope, q.Preview = n.Scope, bytes.Clone(n.Preview)
			q.ApprovedBy, q.ApprovedAt = "", time.Time{}
		}
		q.State, q.EndedBy, q.EndReason = n.State, n.EndedBy, n.EndReason
		if n.Results != nil {
			q.Results = bytes.Clone(n.Results)
		}
		if n.State == shredding.RedactionCompleted {
			q.CompletedAt = r.now()
		}
		return true, nil
	})
}

// NoteRedactionFailure implements ports.Redactions.
func (r *Redactions) NoteRedactionFailure(ctx context.Context, p event.PartitionID, id event.ID, code string) (attempts int, err error) {
	return get(ctx, r.state, func() (int, error) {
		have := r.redactionRequests[id]
		if have == nil || have.Partition != p {
			return 0, nil
		}
		have.Attempts, have.LastError, have.UpdatedAt = have.Attempts+1, code, r.now()
		return have.Attempts, nil
	})
}

// ApproveRedaction implements ports.Redactions.
func (r *Redactions) ApproveRedaction(ctx context.Context, p event.PartitionID, id event.ID, person string, scope event.Hash) (ports.RedactionRequest, error) {
	return r.changeRequest(ctx, p, id, func(q *ports.RedactionRequest) (bool, error) {
		switch {
		case strings.EqualFold(person, q.RequestedBy):
			return false, shredding.RedactionSamePerson()
		case q.State == shredding.RedactionApproved && q.ApprovedBy == person && q.Scope == scope:
			return false, nil // a repeat
		case q.State != shredding.RedactionPreviewed:
			return false, shredding.RedactionMoveRefused()
		case q.Scope != scope:
			return false, shredding.RedactionScopeChanged()
		case !personID.MatchString(person):
			return false, shredding.RedactionInvalid()
		}
		q.State, q.ApprovedBy, q.ApprovedAt = shredding.RedactionApproved, person, r.now()
		return true, nil
	})
}

// RedactPayload implements ports.Redactions.
func (r *Redactions) RedactPayload(ctx context.Context, n ports.RedactionRequest, to ports.RedactedPayload) (ports.Redaction, error) {
	var made ports.Redaction
	_, err := r.changeRequest(ctx, n.Partition, n.ID, func(q *ports.RedactionRequest) (bool, error) {
		p := r.partitions[q.Partition]
		for _, done := range p.redactions {
			if done.ID == q.ID {
				made = done
				return false, nil
			}
		}
		switch {
		case q.State != shredding.RedactionApproved:
			return false, shredding.RedactionNotApproved()
		case !q.ApprovedAt.After(r.now().Add(-shredding.ApprovalValidity)):
			return false, shredding.RedactionApprovalExpired()
		case q.Sequence != n.Sequence || !slices.Equal(q.Pointers, n.Pointers) || q.Scope != to.OldHash:
			return false, shredding.RedactionScopeChanged()
		}
		e := &p.events[q.Sequence-1]
		if event.HashPayload(e.Salt, e.Payload) != to.OldHash {
			return false, shredding.RedactionEventChanged()
		}
		expected, err := redactValues(e.Payload, q.Pointers)
		if err != nil {
			return false, err
		}
		if !bytes.Equal(expected, to.Payload) || to.Salt == e.Salt || to.NewHash != event.HashPayload(to.Salt, to.Payload) {
			return false, shredding.RedactionPayloadRefused()
		}
		made = ports.Redaction{
			ID: q.ID, Partition: q.Partition, Sequence: q.Sequence, EventID: q.EventID, Pointers: q.Pointers, Reason: q.Reason,
			RequestedBy: q.RequestedBy, ApprovedBy: q.ApprovedBy, OldPayloadHash: to.OldHash, NewPayloadHash: to.NewHash, RedactedAt: r.now(),
		}
		p.redactions = append(p.redactions, made)
		e.Salt, e.Payload = to.Salt, bytes.Clone(to.Payload)
		e.Redactions = append(slices.Clone(e.Redactions), event.Redaction{RequestID: q.ID, Pointers: q.Pointers, At: made.RedactedAt})
		r.dropSnapshots(e)
		q.State = shredding.RedactionRedacted
		return true, nil
	})
	return made, err
}

// redactValues replaces the values at the pointers.
func redactValues(payload []byte, pointers []string) ([]byte, error) {
	for _, pointer := range pointers {
		start, end, found, err := jsondoc.Locate(payload, pointer)
		if err != nil || !found {
			return nil, shredding.RedactionPointerInvalid()
		}
		switch value := payload[start:end]; {
		case shredding.HasSealed(value):
			return nil, shredding.RedactionOfSealed()
		case holdsNumber(value):
			return nil, shredding.RedactionOfNumber()
		case string(value) == shredding.Redacted:
			return nil, shredding.RedactionRepeated()
		}
		if payload, err = jsondoc.Splice(nil, payload, pointer, []byte(shredding.Redacted)); err != nil {
			return nil, err
		}
	}
	return payload, nil
}

// holdsNumber reports whether a value is a number, or holds one at any depth.
func holdsNumber(value []byte) bool {
	tokens := json.NewDecoder(bytes.NewReader(value))
	tokens.UseNumber()
	for {
		token, err := tokens.Token()
		if _, isNumber := token.(json.Number); isNumber || err != nil {
			return isNumber
		}
	}
}

// dropSnapshots removes the snapshots that may have folded an event.
func (r *Redactions) dropSnapshots(e *event.Recorded) {
	for k := range r.entitySnapshots {
		if k.partition == e.Partition {
			r.entitySnapshots[k] = slices.DeleteFunc(r.entitySnapshots[k], func(s ports.EntitySnapshot) bool { return s.AsOf >= e.Sequence })
		}
	}
	for k := range r.streamSnapshots {
		if k.partition == e.Partition && k.stream == e.Stream {
			r.streamSnapshots[k] = slices.DeleteFunc(r.streamSnapshots[k], func(s ports.StreamSnapshot) bool { return s.Version >= e.StreamVersion })
		}
	}
}

// Redactions implements ports.RedactionReader.
func (r *Redactions) Redactions(ctx context.Context, id event.PartitionID) ([]ports.Redaction, error) {
	return readPartition(ctx, r.state, id, func(p *partition) ([]ports.Redaction, error) {
		out := slices.Clone(p.redactions)
		for i := range out {
			q := r.redactionRequests[out[i].ID]
			out[i].Request = &ports.RedactionGrounds{
				State: q.State, Sequence: q.Sequence, EventID: q.EventID, Pointers: slices.Clone(q.Pointers), RequestedBy: q.RequestedBy, ApprovedBy: q.ApprovedBy,
			}
		}
		return out, nil
	})
}
