package event

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Draft is an event as a module or a caller proposes it: decoded, not validated,
// without id, sequence, version and hashes.
type Draft struct {
	Type              string
	SchemaVersion     uint32 // 0: the newest active
	OccurredAt        time.Time
	EffectiveDate     Date
	Scope             Scope // tenant and legal entity are filled in by the application
	Stream            StreamID
	CausedBy          ID
	CausedByIndex     int // 1-based index of an earlier event of the same batch that caused this one; 0: none
	CausedByPartition PartitionID
	CorrelationID     string
	Data              any // encoded with encoding/json once; json.RawMessage passes verbatim
	Dimensions        map[string]string
	Entities          []EntityRef
	Tags              []string
	Source            Source
	Series            []SeriesNumber
	Change            *StreamChange // of the log's own events about a stream; nil for all others
}

// BusinessKey is a natural key that an event claims for ever within its
// partition and event type: vendor and invoice number, journal number.
type BusinessKey struct {
	EventType string // the type that owns the key space
	Key       string
	Document  string // shown to a later claimant of the key, such as the invoice id
}

// SeriesNumber asks for the next gap-free number of a series. The number is
// known only under the append lock, so until then every place that shows it
// holds Token; the appender replaces the token by Prefix and the number, padded
// with zeros to Width, in the stream id, payload, entity ids, keys and tags.
type SeriesNumber struct {
	Series string
	Prefix string
	Width  int
	Token  string
}

// Format renders the n-th number of the series.
func (s SeriesNumber) Format(n uint64) string { return fmt.Sprintf("%s%0*d", s.Prefix, s.Width, n) }

// DrawnNumber says which number of which series an event took. The payload holds one for each as
// an element of the member numbers, so that the chain vouches for the state of the series.
type DrawnNumber struct {
	Series string `json:"series"`
	Prefix string `json:"prefix"`
	Number string `json:"number"` // as it is shown
}

// Drawn is what the payload says about the number; the appender replaces the token in it.
func (s SeriesNumber) Drawn() DrawnNumber {
	return DrawnNumber{Series: s.Series, Prefix: s.Prefix, Number: s.Token}
}

// Value is the number in the series, ok is false if the text holds none.
func (d DrawnNumber) Value() (n uint64, ok bool) {
	digits, found := strings.CutPrefix(d.Number, d.Prefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, found && err == nil
}

// Prepared is a validated event. Its skeleton lacks only sequence, recorded_at, stream version,
// checksum and, unless PayloadHashDone, the payload hash; the appender sets them under its lock.
type Prepared struct {
	Skeleton
	TypeNumber      int32 // registry number of the type, part of the key index
	Salt            Salt
	Payload         []byte
	PayloadHashDone bool // the hash was computed before the append; false if the payload will contain a series number
	Keys            []string
	BusinessKeys    []BusinessKey
	Series          []SeriesNumber
	Sealed          []SealedSubject
	Change          *StreamChange // the event's change of its stream; nil: an ordinary event
}

// SealedSubject says that a record holds values sealed with one key of a person,
// the data subject. The store takes a lease on each such key before it writes, so
// that nothing is written under a key that is being destroyed, and keeps the list,
// so that the person's records are found again.
type SealedSubject struct {
	Subject    string // canonical type:id
	KeyClass   uint8  // number of the key class
	KeyVersion uint32
	Pointers   []string // RFC 6901, in the stored document, in document order
}

// Action is what the event does to its stream.
func (p *Prepared) Action() StreamAction {
	if p.Change == nil {
		return AppendToStream
	}
	return p.Change.Action
}

// Size is the event's approximate size in the append queue, in bytes.
func (p *Prepared) Size() int {
	n := len(p.Payload) + len(p.RulesEvaluated) + 512
	for _, k := range p.Keys {
		n += len(k)
	}
	return n
}

// ReplaceToken replaces a token by its number wherever the event holds it. It replaces the
// receiver's slices and does not change their elements, because a refused attempt must leave
// the request unchanged.
func (p *Prepared) ReplaceToken(token, number string) {
	replace := func(s string) string { return strings.ReplaceAll(s, token, number) }
	p.Payload = bytes.ReplaceAll(p.Payload, []byte(token), []byte(number))
	p.Stream.ID = replace(p.Stream.ID)
	p.Keys = mapStrings(p.Keys, replace)
	p.Tags = mapStrings(p.Tags, replace)
	p.Source.Reference = replace(p.Source.Reference)
	keys := make([]BusinessKey, len(p.BusinessKeys))
	for i, k := range p.BusinessKeys {
		k.Key, k.Document = replace(k.Key), replace(k.Document)
		keys[i] = k
	}
	p.BusinessKeys = keys
}

func mapStrings(in []string, f func(string) string) []string {
	if in == nil {
		return nil
	}
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = f(s)
	}
	return out
}
