package erasure

import (
	"context"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const page = 200

// Results is the result of verifying an erasure. It counts a value at each place in a record.
type Results struct {
	VerifiedAt time.Time      `json:"verified_at"`
	Events     int64          `json:"events"`               // that hold sealed values of the person
	Intents    int64          `json:"intents"`              // that hold sealed values of the person
	Redacted   int64          `json:"redacted"`             // values that read [REDACTED]
	Kept       int64          `json:"kept"`                 // values of classes that are not erased
	Copies     *int64         `json:"copies,omitempty"`     // rows of read models with sealed copies, always 0; absent if a class, and with it its copies, is kept
	Index      *int64         `json:"index_rows,omitempty"` // by which searches find the person under the erased classes, always 0; absent if persons are not searched for
	Late       []LateEvent    `json:"late_events"`          // recorded after the destruction; their values read [REDACTED] too
	Chains     []ChainVerdict `json:"verified_chains"`      // of the logs concerned
}

// LateEvent is an event that was recorded after its key was destroyed. It can exist only if
// the key store is in a database of its own, so that lease and append are two transactions.
type LateEvent struct {
	LegalEntity string         `json:"legal_entity"`
	Sequence    event.Sequence `json:"sequence"`
	EventID     event.ID       `json:"event_id"`
}

// verify proves the erasure. It opens every sealed value of the person as a reader with all
// rights does and requires [REDACTED], requires that read models hold no copies, and
// verifies the chains of the logs concerned.
func (c Config) verify(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	dir, err := c.directory(ctx, r.TenantID)
	if err != nil {
		return r, err
	}
	v := verification{config: c, request: r, results: Results{Late: []LateEvent{}, Chains: []ChainVerdict{}}}
	for _, class := range r.Classes {
		v.erased[class.Class] = class.Erased
	}
	for _, p := range r.Partitions {
		le := dir.byPartition[p]
		if err := v.events(ctx, le); err != nil {
			return r, err
		}
		if err := v.intents(ctx, p); err != nil {
			return r, err
		}
		if err := v.copies(ctx, p); err != nil {
			return r, err
		}
		if err := v.index(ctx, p); err != nil {
			return r, err
		}
		verdict, err := c.Chains.VerifyChain(ctx, le)
		if err != nil {
			return r, err
		}
		if verdict.Findings > 0 {
			return r, fault.New(fault.Internal, "erasure.chain_unsound", "the log of a legal entity concerned is not sound; run `backbone verify`")
		}
		v.results.Chains = append(v.results.Chains, verdict)
	}
	if isComplete(r) {
		v.results.Copies = new(int64) // copies fails on any other number
	}
	if c.Index != nil {
		v.results.Index = new(int64) // index has deleted all others
	}
	v.results.VerifiedAt = c.now()
	encoded, err := json.Marshal(v.results)
	if err != nil {
		return r, err
	}
	r.State, r.Results = shredding.ErasureVerified, encoded
	return c.move(ctx, r)
}

type verification struct {
	config  Config
	request ports.ErasureRequest
	erased  [3]bool // by key class
	results Results
}

func (v *verification) events(ctx context.Context, le ports.LegalEntity) error {
	for after := event.Sequence(0); ; {
		found, err := v.config.Records.PersonalEvents(ctx, le.Partition, v.request.Subject, after, page)
		if err != nil {
			return err
		}
		var opening []module.SealedDocument
		for _, e := range found {
			after = e.Sequence
			v.results.Events++
			at := shredding.Location{Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion}
			document, err := v.collect(e.Payload, at)
			if err != nil {
				return err
			}
			if document == nil {
				continue
			}
			opening = append(opening, module.SealedDocument{At: at, Document: document})
			if e.RecordedAt.After(v.request.DestroyedAt) {
				v.results.Late = append(v.results.Late, LateEvent{LegalEntity: le.Code, Sequence: e.Sequence, EventID: e.ID})
			}
		}
		if err := v.open(ctx, opening); err != nil || len(found) < page {
			return err
		}
	}
}

func (v *verification) intents(ctx context.Context, p event.PartitionID) error {
	for after := (event.ID{}); ; {
		found, err := v.config.Records.PersonalIntents(ctx, p, v.request.Subject, after, page)
		if err != nil {
			return err
		}
		var opening []module.SealedDocument
		for _, id := range found {
			after = id
			v.results.Intents++
			i, err := v.config.Intents.Intent(ctx, p, id)
			if err != nil {
				return err
			}
			at := module.LocationOf(&i)
			document, err := v.collect(i.Payload, at)
			if err != nil {
				return err
			}
			if document != nil {
				opening = append(opening, module.SealedDocument{At: at, Document: document})
			}
		}
		if err := v.open(ctx, opening); err != nil || len(found) < page {
			return err
		}
	}
}

// collect returns a JSON array of the person's sealed values, each with the place where it
// was sealed, so that verify opens no other person's data. It leaves out values of classes
// that are kept, and returns nil if no value remains.
func (v *verification) collect(document []byte, at shredding.Location) ([]byte, error) {
	sealed, err := shredding.FindSealed(document)
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, s := range sealed {
		if s.Subject != v.request.Subject {
			continue
		}
		h, err := s.Envelope.Header()
		if err != nil {
			return nil, err
		}
		if !v.erased[h.Class] {
			v.results.Kept++
			continue
		}
		s.SetOrigin(at)
		out = s.Append(append(out, ','))
	}
	if out == nil {
		return nil, nil
	}
	out[0] = '['
	return append(out, ']'), nil
}

// open opens the collected values and requires that all are redacted.
func (v *verification) open(ctx context.Context, documents []module.SealedDocument) error {
	if len(documents) == 0 {
		return nil
	}
	if err := v.config.Opener.Open(ctx, documents, module.Planning{}); err != nil {
		return err
	}
	for _, d := range documents {
		var values []json.RawMessage
		if err := json.Unmarshal(d.Document, &values); err != nil {
			return fault.New(fault.Internal, "erasure.verification_failed", "the opened values are no JSON array; report this defect")
		}
		for _, value := range values {
			if string(value) != shredding.Redacted {
				return fault.New(fault.Internal, "erasure.still_readable", "a value of an erased person does not read [REDACTED]; look for a restored key")
			}
			v.results.Redacted++
		}
	}
	return nil
}

// copies requires that read models hold no copies. It recomputes rows that hold the copy of
// a value of a late event.
func (v *verification) copies(ctx context.Context, p event.PartitionID) error {
	if !isComplete(v.request) {
		return nil
	}
	left, err := v.config.countCopies(ctx, p, v.request.Subject)
	if err != nil || left == 0 {
		return err
	}
	if err := v.config.forgetCopies(ctx, v.request, p); err != nil {
		return err
	}
	if left, err = v.config.countCopies(ctx, p, v.request.Subject); err == nil && left > 0 {
		err = fault.New(fault.Internal, "erasure.copies_left", "read models still hold sealed copies of an erased person; rebuild them")
	}
	return err
}

// index makes sure that the person is not found by what is erased.
func (v *verification) index(ctx context.Context, p event.PartitionID) error {
	if v.config.Index == nil {
		return nil
	}
	left, err := v.config.Index.CountBlindIndex(ctx, p, v.request.Subject, erasedClasses(v.request))
	if err == nil && left > 0 {
		err = v.config.forgetInIndex(ctx, v.request, p)
	}
	return err
}
