package upcasting

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Service implements module.Upcaster.
type Service struct{ versions module.Versions }

var _ module.Upcaster = (*Service)(nil)

// New makes a Service.
func New(versions module.Versions) *Service { return &Service{versions} }

// Upcast implements module.Upcaster. It gives no events if one of them cannot be converted.
func (s *Service) Upcast(ctx context.Context, events []event.Recorded) ([]event.Recorded, error) {
	return s.upcastAll(ctx, events, func(e *event.Recorded, err error) error {
		return fault.New(fault.Internal, "event_type.upcast_failed",
			"event %s of %s version %d cannot be upcast to the version in which it is read; register a version whose upcaster can", e.ID, e.Type, e.SchemaVersion).WithCause(err)
	})
}

// UpcastForDisplay implements module.Upcaster. It fails only if the registry cannot be refreshed,
// or ctx ends.
func (s *Service) UpcastForDisplay(ctx context.Context, events []event.Recorded) ([]event.Recorded, error) {
	return s.upcastAll(ctx, events, func(e *event.Recorded, err error) error {
		if e.UpcastError = fault.CodeOf(err); e.UpcastError == "" {
			e.UpcastError = "event_type.upcast_failed"
		}
		return nil
	})
}

// upcastAll converts events of earlier versions, in a copy. An event that cannot be converted
// stays as stored, unless onFailure returns an error.
func (s *Service) upcastAll(ctx context.Context, events []event.Recorded, onFailure func(e *event.Recorded, err error) error) ([]event.Recorded, error) {
	if err := s.refreshUnknownVersions(ctx, events); err != nil {
		return nil, err
	}
	out := events
	for i := range events {
		steps := s.versions.Steps(events[i].Scope.TenantID, events[i].Type, events[i].SchemaVersion)
		if len(steps) == 0 {
			continue
		}
		if &out[0] == &events[0] {
			out = slices.Clone(events)
		}
		upcast, err := upcastEvent(ctx, events[i], steps, nil)
		if err == nil {
			out[i] = upcast
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := onFailure(&out[i], err); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// refreshUnknownVersions reloads the registry if an event has a version that another node has
// registered since the last refresh. Otherwise events of two versions would be taken for one. A
// version that stays unknown has no steps: its events pass as stored.
func (s *Service) refreshUnknownVersions(ctx context.Context, events []event.Recorded) error {
	var refreshed []string // tenants
	for i := range events {
		tenantID := events[i].Scope.TenantID
		if s.versions.HasVersion(tenantID, events[i].Type, events[i].SchemaVersion) || slices.Contains(refreshed, tenantID) {
			continue
		}
		if err := s.versions.Refresh(ctx, tenantID); err != nil {
			return err
		}
		refreshed = append(refreshed, tenantID)
	}
	return nil
}

// CheckUpcastable implements module.Upcaster. It does not refresh: an append waits for no registry,
// and steps that this node does not know yet are not checked.
func (s *Service) CheckUpcastable(ctx context.Context, e event.Recorded) error {
	steps := s.versions.Steps(e.Scope.TenantID, e.Type, e.SchemaVersion)
	if len(steps) == 0 {
		return nil
	}
	var found []fault.Violation
	if _, err := upcastEvent(ctx, e, steps, &found); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found = append(found, violationOf(err))
	}
	if len(found) == 0 {
		return nil
	}
	for i := range found {
		found[i].Field = "/data" + found[i].Field
	}
	return module.NotUpcastable(e.Type, e.SchemaVersion).WithViolations(found...)
}

func violationOf(err error) fault.Violation {
	if f, ok := fault.As(err); ok {
		return fault.Violation{Field: f.Field, Code: f.Code, Detail: f.Detail}
	}
	return fault.Violation{Code: "event_type.upcast_failed", Detail: "the upcaster ended with an error; correct it"}
}

// upcastEvent applies steps to an event. Readers pass nil for found. Otherwise it also validates
// the result of every step, checks the limits of JSON documents, and adds the violations to found;
// their pointers are relative to the data.
func upcastEvent(ctx context.Context, e event.Recorded, steps []module.Step, found *[]fault.Violation) (event.Recorded, error) {
	last := steps[len(steps)-1].To
	out := e
	out.StoredVersion, out.SchemaVersion = e.SchemaVersion, last.SchemaVersion
	if e.Payload == nil {
		return out, nil
	}
	stored, has, err := jsondoc.Member(e.Payload, "data")
	if err != nil || !has {
		return event.Recorded{}, fault.New(fault.Internal, "event_type.upcast_failed", "the payload of event %s has no data; verify the log", e.ID).WithCause(err)
	}
	data, sealed, err := shredding.Detach(stored, shredding.Location{
		Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion, Pointer: "/data",
	})
	if err != nil {
		return event.Recorded{}, err
	}
	converted, hasUpcaster, err := upcastData(ctx, data, steps, found)
	if err != nil {
		return event.Recorded{}, err
	}
	if len(sealed) == 0 && bytes.Equal(converted, stored) {
		return out, nil
	}
	document, placed, err := shredding.Attach(converted, sealed)
	if err != nil {
		return event.Recorded{}, err
	}
	if out.PII, err = movedClasses(e.PII, placed, last, hasUpcaster); err != nil {
		return event.Recorded{}, err
	}
	out.Payload, err = jsondoc.Splice(make([]byte, 0, len(e.Payload)+len(document)-len(stored)), e.Payload, "/data", document)
	return out, err
}

// upcastData applies steps to data. hasUpcaster is true if one of them has an upcaster.
func upcastData(ctx context.Context, data json.RawMessage, steps []module.Step, found *[]fault.Violation) (out json.RawMessage, hasUpcaster bool, err error) {
	for _, step := range steps {
		if step.Upcast != nil {
			hasUpcaster = true
			before := data
			if data, err = step.Upcast(ctx, data); err != nil {
				return nil, hasUpcaster, err
			}
			if found != nil {
				if err := jsondoc.Check(data, jsondoc.DefaultLimits()); err != nil {
					return nil, hasUpcaster, err
				}
			}
			if data = bytes.TrimSpace(data); !json.Valid(data) || data[0] != '{' {
				return nil, hasUpcaster, fault.New(fault.FailedPrecondition, "event_type.upcast_failed", "the upcaster gives no object; correct it")
			}
			if found != nil && len(step.Keys) > 0 {
				changed, err := eventtype.ChangedKey(step.Keys, before, data)
				if err != nil {
					return nil, hasUpcaster, err
				}
				if changed != nil {
					*found = append(*found, fault.Violation{Field: "/" + jsondoc.EscapeToken(changed.Fields[0]), Code: "event_type." + string(eventtype.BusinessKeyChanged)})
				}
			}
		}
		if data, err = step.To.Defaults.Fill(data); err != nil {
			return nil, hasUpcaster, err
		}
		if found == nil {
			continue
		}
		violations, err := step.To.Schema.Validate(data)
		if err != nil {
			return nil, hasUpcaster, err
		}
		for _, v := range violations {
			if (step.Upcast != nil || v.Code == "schema.required") && !isUnreadable(data, v.Field) {
				*found = append(*found, v)
			}
		}
	}
	return data, hasUpcaster, nil
}

// isUnreadable reports whether a pointer leads into a sealed or redacted value, which cannot
// be validated. It was validated when it was written.
func isUnreadable(data json.RawMessage, pointer string) bool {
	for {
		if start, end, has, err := jsondoc.Locate(data, pointer); err == nil && has {
			value := data[start:end]
			if string(value) == shredding.Redacted {
				return true
			}
			if value[0] == '{' {
				if _, sealed, err := jsondoc.Member(value, "$pii"); err == nil && sealed {
					return true
				}
			}
		}
		cut := strings.LastIndexByte(pointer, '/')
		if cut < 0 {
			return false
		}
		pointer = pointer[:cut]
	}
}

// movedClasses maps the new pointers of sealed values to their classes. Once an upcaster has run,
// every sealed value, moved or not, must be in a member that the newest version declares as
// personal data of the same class; otherwise fault event_type.upcaster_moves_personal.
func movedClasses(stored map[string]string, placed []shredding.Sealed, to *module.RegisteredType, hasUpcaster bool) (map[string]string, error) {
	if len(placed) == 0 && len(stored) == 0 {
		return stored, nil
	}
	out := make(map[string]string, len(placed))
	for _, s := range placed {
		pointer := "/data" + s.Pointer
		class := stored[s.Origin.Pointer]
		if now, known := to.Manifest.ClassAt(pointer, "/data"); hasUpcaster && (!known || string(now) != class) {
			return nil, fault.New(fault.FailedPrecondition, "event_type.upcaster_moves_personal",
				"a personal value is moved to where version %d of %s does not declare one of its class; declare it in pii_fields, or move it elsewhere", to.SchemaVersion, to.Type).WithField(s.Pointer)
		}
		out[pointer] = class
	}
	if maps.Equal(out, stored) {
		return stored, nil
	}
	return out, nil
}

// UpcastProjection wraps a handler so that it gets events in their newest version.
func UpcastProjection(h ports.ProjectionHandler, u module.Upcaster) ports.ProjectionHandler {
	return upcastingHandler{h, u}
}

type upcastingHandler struct {
	ports.ProjectionHandler
	upcaster module.Upcaster
}

// Apply implements ports.ProjectionHandler.
func (p upcastingHandler) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	upcast, err := p.upcaster.Upcast(ctx, b.Events)
	if err != nil {
		return err
	}
	b.Events = upcast
	return p.ProjectionHandler.Apply(ctx, tx, b)
}

// Reader is the read side of the log.
type Reader interface {
	ports.EventReader
	ports.EventSearcher
	ports.StreamReader
	ports.MatchReader
}

// UpcastReader wraps a reader so that it returns events in their newest version. Filters of
// queries still apply to the stored data.
func UpcastReader(r Reader, u module.Upcaster) Reader { return upcastingReader{r, u} }

type upcastingReader struct {
	Reader
	upcaster module.Upcaster
}

// EventByID implements ports.EventReader.
func (r upcastingReader) EventByID(ctx context.Context, p event.PartitionID, id event.ID) (event.Recorded, error) {
	found, err := r.Reader.EventByID(ctx, p, id)
	if err != nil {
		return found, err
	}
	upcast, err := r.upcaster.Upcast(ctx, []event.Recorded{found})
	if err != nil {
		return event.Recorded{}, err
	}
	return upcast[0], nil
}

// EventsOfStream implements ports.EventReader.
func (r upcastingReader) EventsOfStream(ctx context.Context, p event.PartitionID, s event.StreamID, from event.Version, limit int) ([]event.Recorded, error) {
	found, err := r.Reader.EventsOfStream(ctx, p, s, from, limit)
	if err != nil {
		return nil, err
	}
	return r.upcaster.Upcast(ctx, found)
}

// Events implements ports.EventReader.
func (r upcastingReader) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	found, err := r.Reader.Events(ctx, q)
	if err != nil {
		return nil, err
	}
	return r.upcaster.Upcast(ctx, found)
}

// SearchEvents implements ports.EventSearcher.
func (r upcastingReader) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	found, err := r.Reader.SearchEvents(ctx, q, scan)
	if err != nil {
		return found, err
	}
	found.Events, err = r.upcaster.Upcast(ctx, found.Events)
	return found, err
}

// ReadStream implements ports.StreamReader.
func (r upcastingReader) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	found, more, err := r.Reader.ReadStream(ctx, q)
	if err != nil {
		return nil, false, err
	}
	found, err = r.upcaster.Upcast(ctx, found)
	return found, more, err
}

// Matches implements ports.MatchReader.
func (r upcastingReader) Matches(ctx context.Context, q ports.MatchQuery) (ports.MatchPage, error) {
	page, err := r.Reader.Matches(ctx, q)
	if err != nil {
		return page, err
	}
	events := make([]event.Recorded, len(page.Matches))
	for i := range page.Matches {
		events[i] = page.Matches[i].Event
	}
	upcast, err := r.upcaster.Upcast(ctx, events)
	if err != nil {
		return ports.MatchPage{}, err
	}
	matches := slices.Clone(page.Matches)
	for i := range matches {
		matches[i].Event = upcast[i]
	}
	page.Matches = matches
	return page, nil
}
