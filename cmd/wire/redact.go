package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/system"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// RedactOptions are the flags of `backbone redact`.
type RedactOptions struct {
	EraserDSN   string
	DSN         string // the application's; only to run
	Tenant      string // needed where two tenants have the legal entity
	LegalEntity string
	Person      string
	EventID     string
	Pointers    []string
	Reason      string
	ID          string // of the request
	JSON        bool
	Limits      configs.Limits
	Out         io.Writer
}

// redactor is an open redaction service and what to close after it.
type redactor struct {
	service *redaction.Service
	entity  ports.LegalEntity
	close   []func()
}

func (r *redactor) Close() {
	for _, f := range r.close {
		f()
	}
}

// openRedactor connects as the eraser and, to append the event of a redaction, as the
// application, which is the only role that can.
func openRedactor(ctx context.Context, o RedactOptions, announce bool) (r *redactor, err error) {
	r = &redactor{}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	redactions, err := postgres.OpenRedactor(ctx, o.EraserDSN)
	if err != nil {
		return r, err
	}
	r.close = append(r.close, redactions.Close)
	log, err := openReader(ctx, o.EraserDSN)
	if err != nil {
		return r, err
	}
	r.close = append(r.close, log.Close)
	if r.entity, err = findLegalEntity(ctx, log, o.Tenant, o.LegalEntity); err != nil {
		return r, err
	}
	c := redaction.Config{Redactions: redactions, Events: log, Clock: system.Clock{}, IDs: system.NewIDs()}
	if announce {
		store, err := postgres.Open(ctx, postgres.Config{DSN: o.DSN, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return r, err
		}
		r.close = append(r.close, store.Close)
		if c.Announcer, err = newRedactionAnnouncer(ctx, store, o.Limits); err != nil {
			return r, err
		}
	}
	r.service = redaction.New(c)
	return r, nil
}

// openReader opens a store to read with, whatever the role.
func openReader(ctx context.Context, dsn string) (*postgres.Store, error) {
	return postgres.Open(ctx, postgres.Config{DSN: dsn, MaxClockSkew: -1, Logger: slog.New(slog.DiscardHandler)})
}

func findLegalEntity(ctx context.Context, entities interface {
	LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
}, tenant, code string,
) (found ports.LegalEntity, err error) {
	all, err := entities.LegalEntities(ctx, tenant)
	if err != nil {
		return found, err
	}
	n := 0
	for _, le := range all {
		if le.Code == code {
			found = le
			n++
		}
	}
	switch n {
	case 1:
		return found, nil
	case 0:
		return found, fault.New(fault.NotFound, "legal_entity.not_found", "there is no legal entity of this code in the database; check --legal-entity and --tenant")
	default:
		return found, fault.New(fault.Invalid, "legal_entity.ambiguous", "%d tenants have a legal entity of this code; name one with --tenant", n)
	}
}

// redactionAnnouncer appends the events of redactions.
type redactionAnnouncer struct {
	preparer *eventappend.Preparer
	appender ports.EventAppender
}

func newRedactionAnnouncer(ctx context.Context, store *postgres.Store, limits configs.Limits) (*redactionAnnouncer, error) {
	schemas := jsonschema.New()
	catalog, err := module.Build(schemas, Modules()...)
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	types := registry.New(store, schemas, catalog, system.Clock{}, registry.WithTransforms(jq.New()))
	if err := types.RegisterBuiltIn(ctx); err != nil {
		return nil, err
	}
	// Before anything is redacted that could not be told of.
	if _, err := types.Lookup(ctx, redaction.EventType, 0); err != nil {
		return nil, err
	}
	return &redactionAnnouncer{
		preparer: eventappend.NewPreparer(types, system.NewIDs(), eventappend.Limits{
			BatchEvents: limits.BatchEvents, EventBytes: limits.EventBytes, EntityRefs: limits.EntityRefs, Tags: limits.Tags,
		}),
		appender: store,
	}, nil
}

// redactionKeyLife is how long a repeat finds the first outcome by its key; after
// that the event's stream, which can be begun once, stands for it.
const redactionKeyLife = 24 * time.Hour

// Announce implements redaction.Announcer.
func (a *redactionAnnouncer) Announce(ctx context.Context, x redaction.Announcement) error {
	now := system.Clock{}.Now()
	events, err := a.preparer.Prepare(ctx, module.Batch{
		Drafts: []event.Draft{x.Draft}, LegalEntity: x.LegalEntity,
		Actor: event.Actor{Type: event.System, ID: "backbone", Name: "redaction"}, CorrelationID: x.Draft.CorrelationID, Source: x.Draft.Source, Now: now,
	})
	if err != nil {
		return err
	}
	request := ports.AppendRequest{Partition: x.LegalEntity.Partition, Events: events}
	request.Streams = append(request.Streams, x.Stream)
	request.Idempotency = &ports.IdempotencyClaim{Key: x.IdempotencyKey, Fingerprint: x.Fingerprint, ExpiresAt: now.Add(redactionKeyLife)}
	_, err = a.appender.Append(ctx, request)
	return err
}

// redactionState is a request as the command prints it.
type redactionState struct {
	ID          string         `json:"redaction_id"`
	LegalEntity string         `json:"legal_entity"`
	Sequence    event.Sequence `json:"sequence"`
	Pointers    []string       `json:"pointers"`
	Reason      string         `json:"reason"`
	Status      string         `json:"status"` // requested, approved, redacted (no event yet), completed
	RequestedBy string         `json:"requested_by"`
	ApprovedBy  string         `json:"approved_by,omitempty"`
	OldHash     string         `json:"old_payload_hash,omitempty"`
	NewHash     string         `json:"new_payload_hash,omitempty"`
}

func stateOf(le ports.LegalEntity, s redaction.State) redactionState {
	r := s.Request
	out := redactionState{
		ID: r.ID.String(), LegalEntity: le.Code, Sequence: r.Sequence, Pointers: r.Pointers, Reason: r.Reason, Status: "requested",
		RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy,
	}
	if r.ApprovedBy != "" {
		out.Status = "approved"
	}
	if x := s.Redaction; x != nil {
		out.Status = "redacted"
		out.OldHash, out.NewHash = fmt.Sprintf("%x", x.OldPayloadHash), fmt.Sprintf("%x", x.NewPayloadHash)
		if s.Announced {
			out.Status = "completed"
		}
	}
	return out
}

func (o RedactOptions) print(states ...redactionState) error {
	if o.JSON {
		encoder := json.NewEncoder(o.Out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(states)
	}
	table := tabwriter.NewWriter(o.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "REDACTION\tLEGAL ENTITY\tSEQUENCE\tSTATUS\tREQUESTED BY\tAPPROVED BY\tPOINTERS")
	for _, s := range states {
		approved := s.ApprovedBy
		if approved == "" {
			approved = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", s.ID, s.LegalEntity, s.Sequence, s.Status, s.RequestedBy, approved, strings.Join(s.Pointers, " "))
	}
	return table.Flush()
}

func parseRedactionID(text string) (event.ID, error) {
	id, err := event.ParseID(text)
	if err != nil {
		return id, fault.New(fault.Invalid, "redaction.id_invalid", "this is not the id of a redaction; take it from `backbone redact list`")
	}
	return id, nil
}

// RedactRequest asks to redact values of an event.
func RedactRequest(ctx context.Context, o RedactOptions) error {
	id, err := event.ParseID(o.EventID)
	if err != nil {
		return fault.New(fault.Invalid, "redaction.event_invalid", "--event is not an event id; take the 26 characters of the event")
	}
	r, err := openRedactor(ctx, o, false)
	if err != nil {
		return err
	}
	defer r.Close()
	request, err := r.service.Request(ctx, r.entity, id, o.Pointers, o.Reason, o.Person)
	if err != nil {
		return err
	}
	return o.print(stateOf(r.entity, redaction.State{Request: request}))
}

// RedactApprove is the second person's approval.
func RedactApprove(ctx context.Context, o RedactOptions) error {
	id, err := parseRedactionID(o.ID)
	if err != nil {
		return err
	}
	r, err := openRedactor(ctx, o, false)
	if err != nil {
		return err
	}
	defer r.Close()
	request, err := r.service.Approve(ctx, r.entity, id, o.Person)
	if err != nil {
		return err
	}
	return o.print(stateOf(r.entity, redaction.State{Request: request}))
}

// RedactRun carries a request out; without an id it completes what was interrupted.
func RedactRun(ctx context.Context, o RedactOptions) error {
	var id event.ID
	if o.ID != "" {
		var err error
		if id, err = parseRedactionID(o.ID); err != nil {
			return err
		}
	}
	r, err := openRedactor(ctx, o, true)
	if err != nil {
		return err
	}
	defer r.Close()
	if o.ID == "" {
		n, err := r.service.Repair(ctx, r.entity)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(o.Out, "%d interrupted redactions completed.\n", n)
		return err
	}
	if _, err := r.service.Run(ctx, r.entity, id); err != nil {
		return err
	}
	states, err := r.service.List(ctx, r.entity)
	if err != nil {
		return err
	}
	for _, s := range states {
		if s.Request.ID == id {
			if err := o.print(stateOf(r.entity, s)); err != nil {
				return err
			}
		}
	}
	if !o.JSON {
		_, err = fmt.Fprintln(o.Out, "Read models that copied the value keep it until they are rebuilt, and backups until they are deleted.")
	}
	return err
}

// RedactList lists requests and what became of them.
func RedactList(ctx context.Context, o RedactOptions) error {
	r, err := openRedactor(ctx, o, false)
	if err != nil {
		return err
	}
	defer r.Close()
	states, err := r.service.List(ctx, r.entity)
	if err != nil {
		return err
	}
	out := make([]redactionState, len(states))
	for i, s := range states {
		out[i] = stateOf(r.entity, s)
	}
	return o.print(out...)
}
