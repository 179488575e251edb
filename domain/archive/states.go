package archive

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/erpbackbone/backbone/domain/event"
)

// State is the state of an entity or of a stream without which an archived segment cannot be left: from it, nothing
// needs the events that it has.
type State struct {
	Key  string `json:"key"`   // of the entity, as in the key index, or StreamKey
	AsOf uint64 `json:"as_of"` // everything up to here is in it: a sequence for an entity, a version for a stream
	// Version is the sequence of the last event that was folded, for an entity.
	Version event.Sequence `json:"version,omitempty"`
	// Through is the end of the segment that a state of a stream was folded for.
	Through event.Sequence `json:"through,omitempty"`
	// Fold identifies the code that folded it, and Schema the version of its encoding, for a stream.
	Fold             string          `json:"fold"`
	Schema           int             `json:"schema,omitempty"`
	EffectiveThrough event.Date      `json:"effective_through"` // greatest effective date that was folded
	EventCount       int             `json:"event_count,omitempty"`
	Redactions       uint64          `json:"redactions,omitempty"` // of events up to AsOf
	State            json.RawMessage `json:"state"`
}

// StreamKey is the key of the state of a stream.
func StreamKey(s event.StreamID) string { return "stream:" + s.Type + ":" + s.ID }

// StatePage is a part of the states of a segment, by key: JSON lines, compressed with Zstandard.
type StatePage struct {
	FirstKey string
	Packed   []byte
}

// pageBytes is about how many bytes of states a page has. A reader of one state decompresses a page; larger ones compress
// little better.
const pageBytes = 32 << 10

// maxPage bounds what is decompressed of a page: one state may be as large as a snapshot.
const maxPage = 4 << 20

// PackStates makes the pages of states, which it sorts.
func PackStates(states []State) ([]StatePage, error) {
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Key, b.Key) })
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return nil, err
	}
	var pages []StatePage
	var lines []byte
	first := ""
	flush := func() {
		if len(lines) > 0 {
			pages = append(pages, StatePage{first, encoder.EncodeAll(lines, nil)})
			lines = lines[:0]
		}
	}
	for _, s := range states {
		text, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		if len(lines)+len(text) > pageBytes {
			flush()
		}
		if len(lines) == 0 {
			first = s.Key
		}
		lines = append(append(lines, text...), '\n')
	}
	flush()
	return pages, nil
}

// unpack decompresses a page, in bounded memory.
func unpack(packed []byte) (lines []byte, err error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPage))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	if lines, err = decoder.DecodeAll(packed, nil); err != nil {
		return nil, ObjectDamaged()
	}
	return lines, nil
}

// UnpackStates reads all states of a page. Fault archive.object_damaged.
func UnpackStates(packed []byte) (states []State, err error) {
	lines, err := unpack(packed)
	if err != nil {
		return nil, err
	}
	for text := range bytes.Lines(lines) {
		var s State
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, ObjectDamaged()
		}
		states = append(states, s)
	}
	return states, nil
}

// FindState finds a state in a page; nil if the page has none. Fault archive.object_damaged.
func FindState(packed []byte, key string) (*State, error) {
	lines, err := unpack(packed)
	if err != nil {
		return nil, err
	}
	name, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	prefix := append([]byte(`{"key":`), name...)
	for text := range bytes.Lines(lines) {
		if !bytes.HasPrefix(text, prefix) {
			continue
		}
		var s State
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, ObjectDamaged()
		}
		return &s, nil
	}
	return nil, nil
}
