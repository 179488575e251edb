package archive

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// Record is an archived payload with what belongs to it.
type Record struct {
	Sequence event.Sequence
	EventID  event.ID
	Salt     event.Salt
	Payload  []byte // as it was stored, redacted or not
	// Redactions are those that the payload has, in the order in which they were carried out.
	Redactions []event.Redaction
}

// Hash is the hash of the payload under its salt: that of the event's skeleton, or of its last redaction.
func (r *Record) Hash() event.Hash { return event.HashPayload(r.Salt, r.Payload) }

// line is a record as a JSON object. The payload is the last member, so that the rest is read at a glance.
type line struct {
	Sequence   event.Sequence  `json:"sequence"`
	EventID    event.ID        `json:"event_id"`
	Salt       string          `json:"salt"`         // hexadecimal
	Hash       string          `json:"payload_hash"` // hexadecimal
	Redactions []redaction     `json:"redactions,omitempty"`
	Payload    json.RawMessage `json:"payload,omitempty"`
	// Text is the payload if it has line breaks between its tokens: then it cannot be a part of a line.
	Text string `json:"payload_text,omitempty"`
}

type redaction struct {
	Request  event.ID  `json:"request"`
	Pointers []string  `json:"pointers"`
	At       time.Time `json:"at"`
}

// appendLine appends the record's line to out. It writes the payload byte by byte as it is, which package json would
// not: the hash is that of these bytes.
func (r *Record) appendLine(out []byte) ([]byte, error) {
	hash := r.Hash()
	l := line{Sequence: r.Sequence, EventID: r.EventID, Salt: hex.EncodeToString(r.Salt[:]), Hash: hex.EncodeToString(hash[:])}
	for _, x := range r.Redactions {
		l.Redactions = append(l.Redactions, redaction{x.RequestID, x.Pointers, x.At.UTC()})
	}
	isText := bytes.ContainsAny(r.Payload, "\r\n")
	if isText {
		l.Text = string(r.Payload)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // six bytes for one
	if err := encoder.Encode(l); err != nil {
		return out, err
	}
	out = append(out, bytes.TrimSuffix(text.Bytes(), []byte{'\n'})...)
	if !isText {
		out = append(out[:len(out)-1], `,"payload":`...)
		out = append(out, r.Payload...)
		out = append(out, '}')
	}
	return append(out, '\n'), nil
}

// parseLine reads a line. It does not compare the hash.
func parseLine(text []byte) (Record, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Record{}, ObjectDamaged()
	}
	r := Record{Sequence: l.Sequence, EventID: l.EventID, Payload: l.Payload}
	if l.Payload == nil {
		r.Payload = []byte(l.Text)
	}
	salt, err := hex.DecodeString(l.Salt)
	if err != nil || len(salt) != len(r.Salt) {
		return Record{}, ObjectDamaged()
	}
	r.Salt = event.Salt(salt)
	for _, x := range l.Redactions {
		r.Redactions = append(r.Redactions, event.Redaction{RequestID: x.Request, Pointers: x.Pointers, At: x.At})
	}
	return r, nil
}
