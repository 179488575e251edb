package intent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// Binding ties a revision of an intent's row to an event, whose payload holds it as the member
// intent. The chain covers the payload, so an edit of the row contradicts the chain.
type Binding struct {
	Revision int    `json:"revision"`
	Digest   string `json:"digest"` // Intent.Digest in hex
}

// BindingOf reads the binding of a stored payload. It reports false if there is none, which is
// so for all events but the last of each write of an intent.
func BindingOf(payload []byte) (b Binding, bound bool) {
	member, found, err := jsondoc.Member(payload, "intent")
	return b, err == nil && found && json.Unmarshal(member, &b) == nil
}

// Bind makes the binding of the row.
func (i *Intent) Bind() (Binding, error) {
	d, err := i.Digest()
	return Binding{Revision: i.Revision, Digest: hex.EncodeToString(d[:])}, err
}

// digestDomain separates these hashes from the other formats.
const digestDomain = "backbone/intent/v1"

// Digest hashes the row: SHA-256(L(domain) ‖ L(field)…), fields in the order below, L(x) the
// length of x in 4 bytes followed by x, JSON as it is stored. An absent field is empty; the last two
// fields follow their names and are left out where they are absent, as in rows from before
// there were such fields. It
// leaves out the sequences of the events, which are known after it and follow from the
// event with the binding and EventCount.
func (i *Intent) Digest() (event.Hash, error) {
	details, err := encodeUnless(i.Actor.Details.IsZero(), i.Actor.Details)
	if err != nil {
		return event.Hash{}, err
	}
	needs, err := encodeUnless(len(i.Needs) == 0, i.Needs)
	if err != nil {
		return event.Hash{}, err
	}
	approvals, err := encodeUnless(len(i.Approvals) == 0, i.Approvals)
	if err != nil {
		return event.Hash{}, err
	}
	refusal, err := encodeUnless(i.Refusal == nil, i.Refusal)
	if err != nil {
		return event.Hash{}, err
	}
	effective := ""
	if i.HasEffectiveDate {
		effective = i.EffectiveDate.String()
	}
	d := digest{}
	d.text(digestDomain)
	d.number(uint64(i.Partition))
	d.bytes(i.ID[:])
	d.text(i.LegalEntity)
	d.text(i.Type)
	d.bytes(i.Payload)
	d.text(string(i.Actor.Type))
	d.text(i.Actor.ID)
	d.text(i.Actor.Name)
	d.bytes(details)
	d.text(i.PersonID)
	d.number(uint64(len(i.Roles)))
	for _, role := range i.Roles {
		d.text(role)
	}
	d.text(effective)
	d.text(i.CorrelationID)
	d.bytes(i.CausedBy[:])
	d.text(i.Source.System)
	d.text(i.Source.Channel)
	d.text(i.Source.Reference)
	d.text(string(i.Status))
	d.text(i.PlanHash)
	d.bytes(needs)
	d.bytes(approvals)
	d.bytes(i.Rules)
	d.bytes(refusal)
	d.number(uint64(i.EventCount))
	d.number(uint64(i.Revision))
	d.number(uint64(i.CreatedAt.UnixMicro()))
	d.number(uint64(i.UpdatedAt.UnixMicro()))
	if i.CausedByPartition != 0 {
		d.text("caused_by_partition")
		d.number(uint64(i.CausedByPartition))
	}
	if len(i.Documents) > 0 {
		d.text("documents")
		for _, document := range i.Documents {
			d.text(document)
		}
	}
	return sha256.Sum256(d.preimage), nil
}

func encodeUnless(absent bool, v any) ([]byte, error) {
	if absent {
		return nil, nil
	}
	return json.Marshal(v)
}

type digest struct{ preimage []byte }

func (d *digest) bytes(b []byte) {
	d.preimage = append(binary.BigEndian.AppendUint32(d.preimage, uint32(len(b))), b...)
}

func (d *digest) text(s string) { d.bytes([]byte(s)) }

func (d *digest) number(n uint64) {
	d.bytes(binary.BigEndian.AppendUint64(nil, n))
}
