package module

import (
	"context"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// Sight is the part of the log that a caller sees, by event type. Everything that reads
// events for callers applies it: a person sees all types, a service those of its modules and
// those that it was contracted for. The zero value sees nothing.
type Sight struct {
	everything bool
	modules    []string
	contracted []string
	owners     map[string]string // registered module by event type
	builtIn    func(name string) string
}

type sightKey struct{}

// WithSight returns a context in which readers of the log see what find returns. The edge
// sets it for every request of a service; find is called at each read, because event types
// may be registered while a feed runs.
func WithSight(ctx context.Context, find func(context.Context) (Sight, error)) context.Context {
	return context.WithValue(ctx, sightKey{}, find)
}

// SightOf returns the sight of a context. Work of the server itself, and of persons, has none
// and sees everything.
func SightOf(ctx context.Context) (Sight, error) {
	find, bound := ctx.Value(sightKey{}).(func(context.Context) (Sight, error))
	if !bound {
		return FullSight(), nil
	}
	return find(ctx)
}

// FullSight sees events of every type.
func FullSight() Sight { return Sight{everything: true} }

// NewSight is the sight of a service. owners are the modules of the registered event types;
// builtIn names the built-in module that owns a name's prefix, "" if none does.
func NewSight(b ports.Binding, owners map[string]string, builtIn func(name string) string) Sight {
	return Sight{modules: b.Modules, contracted: b.ContractedTypes, owners: owners, builtIn: builtIn}
}

// IsFull reports whether the caller sees every type.
func (s Sight) IsFull() bool { return s.everything }

// Sees reports whether the caller sees events of a type.
func (s Sight) Sees(eventType string) bool {
	return s.everything || s.Owns(eventType) || slices.Contains(s.contracted, eventType)
}

// Owns reports whether an event or intent type belongs to the caller's modules.
func (s Sight) Owns(name string) bool { return s.everything || s.OwnsModule(s.ModuleOf(name)) }

// OwnsModule reports whether a module is one of the caller's.
func (s Sight) OwnsModule(name string) bool {
	return s.everything || name != "" && slices.Contains(s.modules, name)
}

// ModuleOf names the module of an event or intent type: the built-in module that owns its
// prefix, or the module that it was registered for; "" if none is known.
func (s Sight) ModuleOf(name string) string {
	if s.builtIn != nil {
		if owner := s.builtIn(name); owner != "" {
			return owner
		}
	}
	return s.owners[name]
}

// Types lists the registered event types that the caller sees, in order. It is never nil.
func (s Sight) Types() []string {
	out := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.owners)) {
		if s.Sees(name) {
			out = append(out, name)
		}
	}
	return out
}

// Limit returns those of the types that the caller sees; for none given, all that it sees.
// The result is nil only if the caller sees everything and gave none. An empty one selects
// nothing.
func (s Sight) Limit(types []string) []string {
	switch {
	case s.everything:
		return types
	case len(types) == 0:
		return s.Types()
	}
	return slices.DeleteFunc(append([]string{}, types...), func(t string) bool { return !s.Sees(t) })
}

// Filter returns the events that the caller sees. It does not change the given slice.
func (s Sight) Filter(events []event.Recorded) []event.Recorded {
	if s.everything || !slices.ContainsFunc(events, func(e event.Recorded) bool { return !s.Sees(e.Type) }) {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), func(e event.Recorded) bool { return !s.Sees(e.Type) })
}

// FilterStream is Filter for the events of one stream. Of a stream that belongs to the caller's
// modules it also sees the events about the stream itself, such as its deletion.
func (s Sight) FilterStream(events []event.Recorded, owned bool) []event.Recorded {
	if s.everything {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), func(e event.Recorded) bool {
		return !s.Sees(e.Type) && (!owned || eventtype.Prefix(e.Type) != stream.EventPrefix)
	})
}

// Stream reports whether the caller sees a stream, and whether the stream belongs to its
// modules. The prefix of the stream's type names the owner, or where that is no module's
// name the stream's first event does that is not the log's own, which never changes. A stream
// without either belongs to the service that writes it first.
func (s Sight) Stream(ctx context.Context, streams ports.StreamReader, p event.PartitionID, id event.StreamID) (seen, owned bool, err error) {
	seen, owned, _, err = s.stream(ctx, streams, p, id)
	return seen, owned, err
}

// OwnStream is Stream for a caller that writes. A stream is unclaimed while no event tells whose it
// is: two services may find it so at the same time, and only the first event decides.
func (s Sight) OwnStream(ctx context.Context, streams ports.StreamReader, p event.PartitionID, id event.StreamID) (owned, unclaimed bool, err error) {
	_, owned, unclaimed, err = s.stream(ctx, streams, p, id)
	return owned, unclaimed, err
}

func (s Sight) stream(ctx context.Context, streams ports.StreamReader, p event.PartitionID, id event.StreamID) (seen, owned, unclaimed bool, err error) {
	if s.everything {
		return true, true, false, nil
	}
	owner := s.moduleOfStreams(id.Type)
	switch {
	case s.OwnsModule(owner):
		return true, true, false, nil
	case owner != "" && len(s.contracted) == 0:
		return false, false, false, nil
	}
	if shredding.PersonalPattern(id.Type) != "" || shredding.PersonalPattern(id.ID) != "" {
		return owner == "", owner == "", false, nil // no stream has such a name, and the store must not see it
	}
	for _, limit := range []int{1, ownEvents} { // nearly always the first event tells
		events, _, err := streams.ReadStream(ctx, ports.StreamQuery{Partition: p, Stream: id, Limit: limit, WithoutData: true})
		if err != nil {
			return false, false, false, err
		}
		for i := range events {
			if first := events[i].Type; eventtype.Prefix(first) != stream.EventPrefix {
				return s.Sees(first), owner == "" && s.Owns(first), false, nil
			}
		}
		if len(events) < limit {
			unclaimed = owner == ""
			break
		}
	}
	return owner == "", owner == "", unclaimed, nil
}

// ownEvents bounds how many events of the log itself, such as changes of metadata, may come
// before the first event of a stream that tells whose it is.
const ownEvents = 100

// moduleOfStreams names the module whose name is the prefix of a stream's type.
func (s Sight) moduleOfStreams(streamType string) string {
	if s.builtIn != nil {
		if owner := s.builtIn(streamType); owner != "" {
			return owner
		}
	}
	prefix := eventtype.Prefix(streamType)
	if slices.Contains(s.modules, prefix) {
		return prefix
	}
	for _, registered := range s.owners {
		if registered == prefix {
			return prefix
		}
	}
	return ""
}
