package module

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
)

// FoldOf makes the Fold of a stream type whose state T has Clone and Apply. It is folded from its first event
// each time; StoredFoldOf and LongFoldOf store states.
func FoldOf[T interface {
	Clone() T
	Apply(e event.Recorded, data []byte) error
}](streamType string, empty func() T) Fold {
	return Fold{
		StreamType: streamType,
		New:        func() any { return empty() },
		Clone:      func(s any) any { return s.(T).Clone() },
		Apply:      func(s any, e event.Recorded, data []byte) error { return s.(T).Apply(e, data) },
	}
}

// StoredFoldOf is FoldOf with a Codec that keeps the states as JSON objects, so that events older than a snapshot are not
// read for a plan, and can be archived. All that a state holds is exported, and JSON keeps it as it is.
func StoredFoldOf[S any, T interface {
	*S
	Clone() T
	Apply(e event.Recorded, data []byte) error
}](streamType string, version int, empty func() T) Fold {
	fold := FoldOf(streamType, empty)
	fold.Codec = JSONCodec[S](version)
	return fold
}

// LongFoldOf is StoredFoldOf for streams that grow for years.
func LongFoldOf[S any, T interface {
	*S
	Clone() T
	Apply(e event.Recorded, data []byte) error
}](streamType string, version int, empty func() T) Fold {
	fold := StoredFoldOf(streamType, version, empty)
	fold.IsLong = true
	return fold
}

// Codec encodes the state of a Fold for storage, so that long streams are not folded from
// their first event again. A decoded state equals the encoded one. It holds nothing that the
// events do not hold; personal values stay sealed.
type Codec struct {
	Version int // raise it whenever New, Apply or the encoding change; states of other versions are ignored
	Encode  func(state any) ([]byte, error)
	Decode  func(stored []byte) (any, error)
}

// JSONCodec keeps states of type *T as a JSON object. T may have MarshalJSON and UnmarshalJSON.
func JSONCodec[T any](version int) *Codec {
	return &Codec{
		Version: version,
		Encode: func(state any) ([]byte, error) {
			s, ok := state.(*T)
			if !ok {
				return nil, fmt.Errorf("state is a %T, not a %T", state, s)
			}
			return json.Marshal(s)
		},
		Decode: func(stored []byte) (any, error) {
			s := new(T)
			if len(stored) == 0 || stored[0] != '{' {
				return nil, errors.New("stored state is no JSON object")
			}
			if err := json.Unmarshal(stored, s); err != nil {
				return nil, fmt.Errorf("stored state: %w", err)
			}
			return s, nil
		},
	}
}

// EntityFold computes the state of an entity that GET /api/entities returns. It folds all
// events of a legal entity that refer to the entity, in the order of their sequences,
// back-dated ones too. For an entity type without an EntityFold, the members of later
// events' data replace those of earlier ones.
type EntityFold struct {
	EntityType string
	Version    int                 // raise it whenever New, Apply or the state's encoding change; snapshots of other versions are ignored
	New        func(id string) any // a pointer that encodes to a JSON object and decodes from it
	// Apply folds an event and ignores unknown types. Data is the payload's "data" member. A
	// sealed value in it carries the location where it was sealed, so the state may keep it
	// unchanged (json.RawMessage); the API opens it for the reader. The state must not hold
	// personal data in clear.
	Apply func(state any, e event.Recorded, data []byte) error
}

// EntityFold declares how a type of entity is folded.
func (r *Registrar) EntityFold(f EntityFold) {
	if f.EntityType == "" || f.Version < 1 || f.New == nil || f.Apply == nil {
		r.fail("entity fold %q lacks Version, New or Apply", f.EntityType)
	}
	if _, dup := r.catalog.entityFolds[f.EntityType]; dup {
		r.fail("entity fold of %s is declared twice", f.EntityType)
	}
	r.catalog.entityFolds[f.EntityType] = f
}

// StaysOnline declares tags of events whose data plans read by a Decide, however old they are: their payloads are not
// archived. The tags are of few events.
func (r *Registrar) StaysOnline(tags ...string) {
	for _, t := range tags {
		r.catalog.staysOnline[t] = true
	}
}

// StaysOnline reports whether a module reads the data of events with one of the tags, however old they are.
func (c *Catalog) StaysOnline(tags []string) bool {
	return slices.ContainsFunc(tags, func(t string) bool { return c.staysOnline[t] })
}

// EntityFold finds the fold of a type of entity.
func (c *Catalog) EntityFold(entityType string) (EntityFold, bool) {
	f, ok := c.entityFolds[entityType]
	return f, ok
}
