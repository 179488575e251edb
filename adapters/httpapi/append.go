package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	appending "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/ports"
)

var appendHandlers = handlers{
	"appendEvents": withBody((*Server).appendEvents),
}

// appendEvents answers POST /api/events.
func (s *Server) appendEvents(ctx context.Context, r *request, body *api.AppendRequest) (any, error) {
	return s.appendBatch(ctx, r, body, "")
}

// appendBatch writes a batch. place holds the values of path and query that the body does not
// repeat, so that the fingerprint of the idempotency key covers them too.
func (s *Server) appendBatch(ctx context.Context, r *request, batch *api.AppendRequest, place string) (any, error) {
	code, err := legalEntityOf(batch)
	if err != nil {
		return nil, err
	}
	types, err := s.typesOf(ctx, batch)
	if err != nil {
		return nil, err
	}
	le, err := s.authorizeIn(ctx, actionAppend, code, types...)
	if err != nil {
		return nil, pointAtMember(err, "/events/0/scope/legal_entity")
	}
	if err := s.checkStreams(batch); err != nil {
		return nil, err
	}
	if err := s.checkSizes(batch); err != nil {
		return nil, err
	}
	principal := callOf(ctx).principal
	if r.flag("proof"); r.err != nil { // before anything is written
		return nil, r.err
	}
	req := appending.Request{
		LegalEntity: le, Actor: principal.Actor(), PersonID: principal.PersonID, IdempotencyKey: r.idempotencyKey(),
		Roles: rolesOf(ctx), AllowUnknownCause: batch.AllowUnknownCause,
		Drafts: make([]event.Draft, len(batch.Events)),
	}
	for i := range batch.Events {
		if err := ctx.Err(); err != nil { // the caller has left
			return nil, err
		}
		if req.Drafts[i], err = s.parseDraft(ctx, &batch.Events[i], le); err != nil {
			return nil, pointAtEvent(err, i)
		}
	}
	if req.Streams, err = streamExpectations(batch.Events, r.header("Expected-Version")); err != nil {
		return nil, err
	}
	if req.Entities, err = entityExpectations(batch.Events); err != nil {
		return nil, err
	}
	if req.Conditions, err = parseConditions(batch.AppendCondition, code); err != nil {
		return nil, err
	}
	if req.IdempotencyKey != "" {
		req.Digest = fingerprint(callOf(ctx).body, r.header("Expected-Version")+place)
	}
	receipts, replayed, err := s.appendInSight(ctx, req)
	if err != nil {
		return nil, err
	}
	answer := api.AppendResponse{Events: convert(receipts, receiptAnswer)}
	if r.flag("proof") {
		s.awaitProofs(ctx, le.Partition, receipts, answer.Events)
	}
	return replyReplayed(createdStatus(!replayed), answer, replayed)
}

// proofWait bounds how long an append waits for its proofs; half of the time that its request has left does too.
const proofWait = 15 * time.Second

// awaitProofs adds proofs to an answer. Without them it is still true: the events were appended.
func (s *Server) awaitProofs(ctx context.Context, p event.PartitionID, appended []ports.AppendedEvent, answer []api.AppendedEvent) {
	wait := proofWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	events := make([]ports.EventPosition, len(appended))
	for i, e := range appended {
		events[i] = ports.EventPosition{Partition: p, Sequence: e.Sequence}
	}
	proofs, err := s.config.Proofs.Await(ctx, events)
	if err != nil {
		return
	}
	for i, proof := range proofs {
		answer[i].Proof = string(proof.Encode())
	}
}

// claimTries bounds how often an append finds that another service has begun an unclaimed stream.
const claimTries = 5

const codeStreamOwned = "append.stream_owned_by_module"

// appendInSight appends a batch. That of a service writes streams of its modules only, and its
// conditions and expectations of entities are about the events that the service sees.
func (s *Server) appendInSight(ctx context.Context, req appending.Request) ([]ports.AppendedEvent, bool, error) {
	sight, err := module.SightOf(ctx)
	if err != nil {
		return nil, false, err
	}
	if sight.IsFull() {
		return s.config.Appends.Append(ctx, req)
	}
	if dependsOnAllTypes(sight, &req) {
		if err := s.config.Types.Refresh(ctx, callOf(ctx).principal.TenantID); err != nil {
			return nil, false, err
		}
		if sight, err = module.SightOf(ctx); err != nil {
			return nil, false, err
		}
	}
	if err := limitConditions(sight, &req); err != nil {
		return nil, false, err
	}
	expected, refreshed := req.Streams, false
	for try := 1; ; try++ {
		claims, err := s.checkOwnStreams(ctx, req.LegalEntity, req.Drafts, expected)
		if fault.CodeOf(err) == codeStreamOwned && !refreshed { // or its first type is unknown here
			if err := s.config.Types.Refresh(ctx, callOf(ctx).principal.TenantID); err != nil {
				return nil, false, err
			}
			refreshed = true
			continue
		}
		if err != nil {
			return nil, false, err
		}
		req.Streams = slices.Concat(expected, claims)
		receipts, replayed, err := s.config.Appends.Append(ctx, req)
		if try == claimTries || !isLost(claims, err) {
			return receipts, replayed, err
		}
	}
}

// dependsOnAllTypes reports whether a condition of the batch is about every type that the caller sees,
// or about one that is unknown here. A type of its modules that another node registered just now would
// be missing in it, and the append would not be refused.
func dependsOnAllTypes(sight module.Sight, req *appending.Request) bool {
	isUnseen := func(name string) bool { return !sight.Sees(name) }
	return len(req.Entities) > 0 || slices.ContainsFunc(req.Conditions, func(c concurrency.AppendCondition) bool {
		return slices.ContainsFunc(c.Items, func(i concurrency.Item) bool { return len(i.Types) == 0 || slices.ContainsFunc(i.Types, isUnseen) })
	})
}

// maxEntityConditions bounds the entities that one batch of a service expects versions of, because
// the store reads index entries of each under the partition's lock. It is as many as the items of
// an append condition can name.
const maxEntityConditions = 64 * maxItemKeys

// limitConditions limits the conditions of a batch to the events that the caller sees. A refusal of
// an expected version of an entity would tell the sequences of events of other modules, so the
// version becomes a condition: no later event of a visible type refers to the entity. Unlike an
// exact version it accepts a sequence beyond the last visible event, such as the position that a
// query has reached: no event that the caller decided on has been added since.
func limitConditions(sight module.Sight, req *appending.Request) error {
	slices.SortFunc(req.Entities, compareExpectations)
	req.Entities = slices.Compact(req.Entities)
	if n := len(req.Entities); n > maxEntityConditions {
		return fault.New(fault.TooLarge, "append.condition_too_large",
			"a batch of a service may expect versions of at most %d entities; split it", maxEntityConditions).WithNumbers(maxEntityConditions, n)
	}
	versions := convert(req.Entities, func(e concurrency.EntityExpectation) concurrency.AppendCondition {
		entity := concurrency.Entity{Type: e.EntityType, ID: e.EntityID}
		return concurrency.AppendCondition{Items: []concurrency.Item{{Entities: []concurrency.Entity{entity}}}, After: e.Sequence, Entity: entity}
	})
	req.Entities, req.Conditions = nil, append(versions, req.Conditions...)
	for i := range req.Conditions {
		req.Conditions[i].Items = query.LimitItems(sight, req.Conditions[i].Items)
	}
	req.Conditions = slices.DeleteFunc(req.Conditions, func(c concurrency.AppendCondition) bool { return len(c.Items) == 0 })
	return nil
}

func compareExpectations(a, b concurrency.EntityExpectation) int {
	return cmp.Or(cmp.Compare(a.EntityType, b.EntityType), cmp.Compare(a.EntityID, b.EntityID), cmp.Compare(a.Sequence, b.Sequence))
}

// isLost reports whether an append failed because another service was first to write to a claimed stream.
func isLost(claims []concurrency.StreamExpectation, err error) bool {
	f, ok := fault.As(err)
	return ok && f.Code == concurrency.CodeWrongExpectedVersion &&
		slices.ContainsFunc(claims, func(c concurrency.StreamExpectation) bool { return f.Attributes["stream"] == c.Stream.String() })
}

// checkOwnStreams refuses streams that do not belong to the modules of a service. It returns the
// expectations that make those its own that no event tells yet whose they are: that there is no
// stream, unless the batch names the version.
func (s *Server) checkOwnStreams(
	ctx context.Context, le ports.LegalEntity, drafts []event.Draft, expected []concurrency.StreamExpectation,
) (claims []concurrency.StreamExpectation, err error) {
	checked := map[event.StreamID]bool{}
	for i := range drafts {
		id := drafts[i].Stream
		if checked[id] {
			continue
		}
		checked[id] = true
		unclaimed, err := s.config.Streams.RequireOwned(ctx, le, id)
		if fault.KindOf(err) == fault.NotFound {
			return nil, pointAtEvent(fault.New(fault.Forbidden, codeStreamOwned,
				"this stream belongs to another module; choose a stream of your own and refer to the other by entities").WithField("/stream"), i)
		} else if err != nil {
			return nil, err
		}
		named := func(e concurrency.StreamExpectation) bool {
			return e.Stream == id && !e.Expected.IsAny() && e.Expected != concurrency.StreamExists() // which its metadata meet
		}
		if unclaimed && !slices.ContainsFunc(expected, named) {
			claims = append(claims, concurrency.StreamExpectation{Stream: id, Expected: concurrency.NoStream()})
		}
	}
	return claims, nil
}

func receiptAnswer(e ports.AppendedEvent) api.AppendedEvent {
	return api.AppendedEvent{
		ID: e.ID.String(), Sequence: numberText(e.Sequence), StreamVersion: int64(e.StreamVersion),
		RecordedAt: timeText(e.RecordedAt), Checksum: hex.EncodeToString(e.Checksum[:]),
	}
}

// pointAtEvent prefixes a fault's pointer with the index of its event.
func pointAtEvent(err error, index int) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	return f.WithField(fmt.Sprintf("/events/%d%s", index, f.Field))
}

// pointAtMember moves a fault about the parameter legal_entity to the member of the
// body that names the legal entity.
func pointAtMember(err error, pointer string) error {
	if f, ok := fault.As(err); ok && f.Field == "legal_entity" {
		return f.WithField(pointer)
	}
	return err
}

// legalEntityOf returns the one legal entity of a batch, or refuses a mixed batch.
func legalEntityOf(batch *api.AppendRequest) (string, error) {
	if len(batch.Events) == 0 {
		return "", fault.New(fault.Invalid, "append.batch_empty", "a batch needs at least one event; add it").WithField("/events")
	}
	code := batch.Events[0].Scope.LegalEntity
	for i := range batch.Events {
		switch have := batch.Events[i].Scope.LegalEntity; have {
		case "":
			return "", pointAtEvent(missingMember("/scope/legal_entity"), i)
		case code:
		default:
			return "", pointAtEvent(mixedLegalEntities("/scope/legal_entity"), i)
		}
	}
	return code, nil
}

func mixedLegalEntities(pointer string) error {
	return fault.New(fault.Invalid, "append.mixed_legal_entities", "a batch belongs to one legal entity; send one batch for each").WithField(pointer)
}

// typesOf lists each event type of the batch once, with the module that owns it. A service may
// write types of its modules only, so that a type without a module is unknown to it.
func (s *Server) typesOf(ctx context.Context, batch *api.AppendRequest) ([]tenancy.TypeAccess, error) {
	if p := callOf(ctx).principal; p.IsService() { // learns of types that were registered on another node just now
		if _, err := s.config.Types.FindUnregistered(ctx, p.TenantID, convert(batch.Events, func(e api.NewEvent) string { return e.Type })); err != nil {
			return nil, err
		}
	}
	sight, err := module.SightOf(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]tenancy.TypeAccess, 0, 1)
	seen := make(map[string]bool, 1)
	for i := range batch.Events {
		name := batch.Events[i].Type
		if seen[name] {
			continue
		}
		seen[name] = true
		builtIn := s.config.Catalog.Owner(name)
		owner := cmp.Or(builtIn, sight.ModuleOf(name))
		if owner == "" && name != "" && !sight.IsFull() {
			return nil, pointAtEvent(eventtype.NotRegistered(name), i)
		}
		out = append(out, tenancy.TypeAccess{Type: name, Module: owner, BuiltIn: builtIn != ""})
	}
	return out, nil
}

// checkStreams refuses events of other owners in the streams of built-in modules, which fold
// these streams into documents and rely on their versions.
func (s *Server) checkStreams(batch *api.AppendRequest) error {
	for i := range batch.Events {
		e := &batch.Events[i]
		if owner := s.config.Catalog.StreamOwner(e.Stream.Type); owner != "" && owner != s.config.Catalog.Owner(e.Type) {
			return pointAtEvent(fault.New(fault.Forbidden, "append.stream_owned_by_module",
				"streams of this type belong to the built-in module %s; choose a stream type of your own and refer to its documents by entities", owner).
				WithField("/stream/type"), i)
		}
	}
	return nil
}

// checkSizes refuses events that are over the limits before they are parsed.
func (s *Server) checkSizes(batch *api.AppendRequest) error {
	limits := appending.Limits{EventBytes: s.limits.EventBytes}
	for i := range batch.Events {
		data := batch.Events[i].Data
		if err := limits.CheckEvent(data); err != nil {
			return pointAtEvent(err, i)
		}
		// A value takes two bytes at least, so smaller documents cannot have too many.
		if len(data) > 2*s.limits.EventNodes {
			if err := jsondoc.Check(data, s.limits.eventLimits()); err != nil {
				f, ok := fault.As(err)
				if !ok {
					return err
				}
				return pointAtEvent(f.WithField("/data"+f.Field), i)
			}
		}
	}
	return nil
}

// schemaVersion reads an optional version. Absent is 0, the newest version; a written 0
// is refused, because no version has that number.
func schemaVersion(asked *uint32, code string) (uint32, error) {
	switch {
	case asked == nil:
		return 0, nil
	case *asked == 0:
		return 0, fault.New(fault.Invalid, code, "versions of an event type begin with 1; correct schema_version, or leave it out").WithField("/schema_version")
	}
	return *asked, nil
}

func (s *Server) parseDraft(ctx context.Context, e *api.NewEvent, le ports.LegalEntity) (event.Draft, error) {
	d := event.Draft{
		Type: e.Type, CorrelationID: e.CorrelationID, Data: e.Data, Dimensions: e.Dimensions, Tags: e.Tags,
		Scope:  event.Scope{Division: e.Scope.Division, Region: e.Scope.Region, Site: e.Scope.Site},
		Stream: streamID(e.Stream),
		Source: event.Source{System: e.Source.System, Channel: e.Source.Channel, Reference: e.Source.Reference},
	}
	if e.Type == "" {
		return d, missingMember("/type")
	}
	version, err := schemaVersion(e.SchemaVersion, "append.schema_version_invalid")
	if err != nil {
		return d, err
	}
	d.SchemaVersion = version
	if err := checkObject(e.Data, "/data"); err != nil {
		return d, err
	}
	if len(e.Scope.Custom) > 0 {
		var texts map[string]string
		if err := json.Unmarshal(e.Scope.Custom, &texts); err != nil {
			return d, fault.New(fault.Invalid, "json.wrong_type", "custom is an object of strings; send one").WithField("/scope/custom")
		}
		if len(texts) > 0 {
			d.Scope.Custom = e.Scope.Custom
		}
	}
	for _, r := range e.Entities {
		d.Entities = append(d.Entities, event.EntityRef{Type: r.EntityType, ID: r.EntityID, Role: r.Role})
	}
	if e.OccurredAt != "" {
		if d.OccurredAt, err = time.Parse(time.RFC3339Nano, e.OccurredAt); err != nil {
			return d, fault.New(fault.Invalid, "append.time_invalid", "this is an RFC 3339 time such as 2026-03-31T12:00:00Z; correct it").WithField("/occurred_at")
		}
	}
	if e.EffectiveDate != "" {
		if d.EffectiveDate, err = event.ParseDate(e.EffectiveDate); err != nil {
			return d, fault.New(fault.Invalid, "append.date_invalid", "this is an ISO date such as 2026-03-31; correct it").WithField("/effective_date")
		}
	}
	if e.CausedBy != "" {
		if d.CausedBy, err = event.ParseID(e.CausedBy); err != nil {
			return d, invalidCause("/caused_by")
		}
	}
	if e.CausedByLegalEntity != "" && e.CausedByLegalEntity != le.Code {
		d.CausedByPartition, err = s.partitionOfCause(ctx, e.CausedBy, e.CausedByLegalEntity)
	}
	return d, err
}

// partitionOfCause finds the legal entity of a cause, in which the caller need not be allowed to
// act.
func (s *Server) partitionOfCause(ctx context.Context, cause, code string) (event.PartitionID, error) {
	if cause == "" {
		return 0, missingMember("/caused_by")
	}
	le, err := s.findVisibleLegalEntity(ctx, code)
	return le.Partition, pointAtMember(err, "/caused_by_legal_entity")
}

// findVisibleLegalEntity finds a legal entity that the caller may see, even if it may not act
// in it.
func (s *Server) findVisibleLegalEntity(ctx context.Context, code string) (ports.LegalEntity, error) {
	visible, err := s.visibleLegalEntities(ctx)
	if err != nil {
		return ports.LegalEntity{}, err
	}
	for _, le := range visible {
		if le.Code == code {
			return le, nil
		}
	}
	return ports.LegalEntity{}, fault.New(fault.NotFound, "legal_entity.not_found",
		"there is no such legal entity that you may see; GET /api/admin/legal-entities lists them").WithField("/caused_by_legal_entity")
}

func invalidCause(pointer string) error {
	return fault.New(fault.Invalid, "request.caused_by_invalid", "caused_by is the id of an event, 26 characters; correct it").WithField(pointer)
}

// fingerprint is the digest of a request: its body without white space, and the values of
// header, path and query that change its effect.
func fingerprint(body []byte, outsideBody string) event.Hash {
	compact := jsondoc.AppendCompact(make([]byte, 0, len(body)+len(outsideBody)+1), body)
	compact = append(compact, '\n')
	return sha256.Sum256(append(compact, outsideBody...))
}

// parseExpected reads an expected version: a number, or a word such as "no_stream".
func parseExpected(raw json.RawMessage) (concurrency.Expected, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return concurrency.Any(), true
	}
	if raw[0] == '"' {
		var word string
		if json.Unmarshal(raw, &word) != nil || word == "" {
			return concurrency.Expected{}, false
		}
		return concurrency.ParseExpected(word)
	}
	n, err := strconv.ParseUint(string(raw), 10, 63)
	return concurrency.Exactly(event.Version(n)), err == nil
}

// streamExpectations collects the versions that the streams of a batch must have before it,
// from the member expected_version of its events or the header Expected-Version; the API has
// no ETag. Events of one stream must not expect different versions.
func streamExpectations(events []api.NewEvent, header string) ([]concurrency.StreamExpectation, error) {
	var out []concurrency.StreamExpectation
	expect := func(given api.Stream, e concurrency.Expected, field string) error {
		if e.IsAny() {
			return nil
		}
		stream := streamID(given)
		i := slices.IndexFunc(out, func(s concurrency.StreamExpectation) bool { return s.Stream == stream })
		if i < 0 {
			out = append(out, concurrency.StreamExpectation{Stream: stream, Expected: e})
		} else if out[i].Expected != e {
			return fault.New(fault.Invalid, "append.expected_version_conflict",
				"the batch expects two versions of one stream; give the version before the batch, once or with every event alike").WithField(field)
		}
		return nil
	}
	for i := range events {
		field := fmt.Sprintf("/events/%d/expected_version", i)
		expected, ok := parseExpected(events[i].ExpectedVersion)
		if !ok {
			return nil, invalidExpectation(field)
		}
		if err := expect(events[i].Stream, expected, field); err != nil {
			return nil, err
		}
	}
	if header == "" {
		return out, nil
	}
	expected, err := parseExpectedHeader(header)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(events, func(e api.NewEvent) bool { return e.Stream != events[0].Stream }) {
		return nil, fault.New(fault.Invalid, "append.expected_version_ambiguous",
			"the header names the version of one stream and the batch has several; give expected_version with the events").WithField("Expected-Version")
	}
	err = expect(events[0].Stream, expected, "Expected-Version")
	return out, err
}

func streamID(s api.Stream) event.StreamID { return event.StreamID{Type: s.Type, ID: s.ID} }

func invalidExpectation(field string) error {
	return fault.New(fault.Invalid, "append.expected_version_invalid", "an expected version is a number, no_stream, stream_exists or any; correct it").WithField(field)
}

func entityExpectations(events []api.NewEvent) ([]concurrency.EntityExpectation, error) {
	var out []concurrency.EntityExpectation
	for i := range events {
		for j, e := range events[i].ExpectedEntities {
			text := string(e.Version)
			if unquoted, err := strconv.Unquote(text); err == nil {
				text = unquoted
			}
			n, err := strconv.ParseUint(text, 10, 63)
			if err != nil || e.EntityType == "" || e.EntityID == "" {
				return nil, fault.New(fault.Invalid, "append.expected_entity_invalid", "name entity_type, entity_id and the version that a read gave; correct it").
					WithField(fmt.Sprintf("/events/%d/expected_entities/%d", i, j))
			}
			out = append(out, concurrency.EntityExpectation{EntityType: e.EntityType, EntityID: e.EntityID, Sequence: event.Sequence(n)})
		}
	}
	return out, nil
}

func parseConditions(c api.AppendCondition, code string) ([]concurrency.AppendCondition, error) {
	if c.Items == nil && c.After == "" && c.LegalEntity == "" {
		return nil, nil
	}
	if c.LegalEntity != "" && c.LegalEntity != code {
		return nil, mixedLegalEntities("/append_condition/legal_entity")
	}
	after, err := strconv.ParseUint(c.After, 10, 63)
	if err != nil {
		return nil, invalidCondition("/append_condition/after")
	}
	items, err := parseConditionItems(c.Items, "/append_condition/items")
	return []concurrency.AppendCondition{{Items: items, After: event.Sequence(after)}}, err
}

func invalidCondition(pointer string) error {
	return fault.New(fault.Invalid, "append.condition_invalid", "a condition has items, each with types, tags or entities, and the sequence after which none may match; correct it").
		WithField(pointer)
}
