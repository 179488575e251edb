package subscription

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
)

// Key decides the order of messages: within a legal entity, those with the same key are
// delivered in the order of their sequences, and a later one waits for an answer to an earlier
// one unless both are in the same batch. Messages with the zero Key, and those of different
// legal entities, have no order. It is a hash, so that no value of a payload is stored with a
// message.
type Key [16]byte

// KeyOf returns an event's key. An event without an entity of the type, or without a scalar
// value at the path, gets the key of its stream. The first of several entities or values
// counts.
func (s *Settings) KeyOf(e *event.Recorded) Key {
	switch {
	case s.PartitionBy == NoOrder:
		return Key{}
	case s.PartitionBy == PerLegalEntity:
		return hashKey(PerLegalEntity)
	case s.PartitionBy == PerCorrelation:
		return hashKey(PerCorrelation, e.CorrelationID)
	case strings.HasPrefix(s.PartitionBy, entityPrefix):
		kind := s.PartitionBy[len(entityPrefix):]
		if body, err := e.Body(); err == nil {
			for _, r := range body.EntityRefs {
				if r.Type == kind {
					return hashKey(entityPrefix, r.Type, r.ID)
				}
			}
		}
	case strings.HasPrefix(s.PartitionBy, pathPrefix):
		if value, ok := firstAt(e.Payload, s.PartitionBy); ok {
			return hashKey(pathPrefix, value)
		}
	}
	return hashKey(PerStream, e.Stream.Type, e.Stream.ID)
}

func hashKey(parts ...string) Key {
	h := sha256.New()
	var n [4]byte
	for _, p := range parts {
		binary.BigEndian.PutUint32(n[:], uint32(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return Key(h.Sum(nil)[:16])
}

// firstAt returns the first scalar at a path of the stored data, marked with its JSON type.
func firstAt(payload []byte, path string) (string, bool) {
	at, err := event.DecodeData(payload)
	if err != nil {
		return "", false
	}
	for step := range strings.SplitSeq(strings.ReplaceAll(strings.TrimPrefix(path, pathPrefix), event.EachElement, ""), ".") {
		object, ok := first(at).(map[string]any)
		if !ok {
			return "", false
		}
		if at, ok = object[step]; !ok {
			return "", false
		}
	}
	switch v := first(at).(type) {
	case string:
		return "s" + v, true
	case json.Number:
		return "n" + v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	default:
		return "", false
	}
}

func first(v any) any {
	for {
		list, ok := v.([]any)
		if !ok {
			return v
		}
		if len(list) == 0 {
			return nil
		}
		v = list[0]
	}
}

// Owner is the consumer that a key is pinned to: the one with the highest weight, so that a
// consumer that joins or leaves moves only its own keys.
func (k Key) Owner(consumers []string) string {
	var owner string
	var highest [32]byte
	for i, c := range consumers {
		weight := sha256.Sum256(append(k[:], c...))
		if i == 0 || bytes.Compare(weight[:], highest[:]) > 0 {
			owner, highest = c, weight
		}
	}
	return owner
}
