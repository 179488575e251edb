package httpapi

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// bodyNeed says whether an operation has a body.
type bodyNeed uint8

const (
	noBody bodyNeed = iota
	optionalBody
	requiredBody
)

// operation says what an operation of the document asks of its caller.
type operation struct {
	action string // for the access policy; "" is open to everybody
	body   bodyNeed
	batch  bool // the body holds many events
	// filters are the query parameters; others are refused. A filter that is silently
	// ignored would show more than was asked for, and dry_run in the address of a request
	// that has it in its body would write.
	filters []string
	checks  bool // it checks its parameters itself
	events  bool // it shows events, as stored if it is asked for that
}

// operations by operationId. A test checks that every operation of the document
// is here.
var operations = map[string]operation{
	"appendEvents":            {action: "events.append", body: requiredBody, batch: true},
	"listEvents":              {action: "events.read", filters: slices.Concat(eventFilters, []string{"limit", "cursor", rawParameter}), events: true},
	"exportEvents":            {action: actionExport, filters: slices.Concat(eventFilters, []string{"limit", "cursor", "checkpoints", rawParameter}), events: true},
	"readStream":              {action: "events.read", filters: []string{"legal_entity", "direction", "from", "as_of", "known_at", "count", "include_data", rawParameter}, events: true},
	"readAllEvents":           {action: "events.read", filters: []string{"from", "count", "include_data", rawParameter}, events: true},
	"subscribeToStream":       {action: actionSubscribe, filters: []string{"legal_entity", "from", "include_data", rawParameter}, events: true},
	"subscribeToAll":          {action: actionSubscribe, filters: []string{"from", "event_types", "legal_entities", "modules", "include_data", rawParameter}, events: true},
	"deleteStream":            {action: actionDeleteStream, filters: []string{"legal_entity", "hard", "reason"}},
	"getStreamMetadata":       {action: actionReadStatus, filters: []string{"legal_entity"}},
	"setStreamMetadata":       {action: actionDescribeStream, body: requiredBody, filters: []string{"legal_entity", "reason"}},
	"appendToStream":          {action: actionAppend, body: requiredBody, batch: true, filters: []string{"legal_entity"}},
	"getEntity":               {action: actionReadEntities, filters: []string{"legal_entity", "consistency", "as_of", "known_at"}},
	"saveSnapshot":            {action: actionWriteSnapshots, body: requiredBody, filters: []string{"legal_entity"}},
	"getLatestSnapshot":       {action: actionReadSnapshots, filters: []string{"legal_entity"}},
	"getSnapshot":             {action: actionReadSnapshots, filters: []string{"legal_entity"}},
	"getEvent":                {action: "events.read", filters: []string{"legal_entity", rawParameter}, events: true},
	"getLineage":              {action: "events.read", filters: []string{"legal_entity", rawParameter}, events: true},
	"getDescendants":          {action: "events.read", filters: []string{"legal_entity", "limit", rawParameter}, events: true},
	"getProcess":              {action: "events.read", filters: []string{"limit", rawParameter}, events: true},
	"queryEvents":             {action: "events.read", body: requiredBody, filters: []string{rawParameter}, events: true},
	"registerEventType":       {action: "event_types.register", body: requiredBody},
	"checkEventType":          {action: "event_types.check", body: requiredBody},
	"deprecateEventType":      {action: "event_types.deprecate", body: optionalBody},
	"reactivateEventType":     {action: "event_types.deprecate", body: optionalBody},
	"getEventTypeHistory":     {action: "event_types.read"},
	"listEventTypeChanges":    {action: "event_types.read"},
	"listEventTypes":          {action: "event_types.read"},
	"getEventType":            {action: "event_types.read"},
	"submitIntent":            {action: "intents.submit", body: requiredBody},
	"getIntent":               {action: "intents.read", filters: []string{"legal_entity"}},
	"approveIntent":           {action: "intents.approve", body: optionalBody, filters: []string{"legal_entity"}},
	"rejectIntent":            {action: "intents.approve", body: requiredBody, filters: []string{"legal_entity"}},
	"listProjections":         {action: actionReadProjections},
	"createProjection":        {action: actionDefineProjections, body: requiredBody, filters: []string{"dry_run", "untried"}},
	"replaceProjection":       {action: actionDefineProjections, body: requiredBody, filters: []string{"dry_run", "untried", "switch"}},
	"deleteProjection":        {action: actionDefineProjections},
	"getProjectionRows":       {action: "events.read", filters: []string{"legal_entity", "key", "prefix", "min_sequence", "limit", "cursor"}},
	"getProjection":           {action: actionReadProjections},
	"configureProjection":     {action: actionOperateProjections, body: requiredBody},
	"operateProjection":       {action: actionOperateProjections, body: optionalBody},
	"getProjectionRebuild":    {action: actionReadProjections},
	"rebuildProjection":       {action: actionOperateProjections, body: optionalBody},
	"rebuildProjectionRows":   {action: actionOperateProjections, body: requiredBody},
	"compareProjection":       {action: actionOperateProjections, body: optionalBody},
	"switchProjection":        {action: actionOperateProjections, body: optionalBody},
	"rollbackProjection":      {action: actionOperateProjections, body: optionalBody},
	"takeProjectionSnapshot":  {action: actionOperateProjections, body: optionalBody},
	"cancelProjectionRebuild": {action: actionOperateProjections, body: optionalBody},
	"dropProjectionVersion":   {action: actionOperateProjections, body: optionalBody},
	"listDeadLetters":         {action: actionReadProjections, filters: []string{"kind", "name", "status", "limit", "cursor"}},
	"createLegalEntity":       {action: "legal_entities.create", body: requiredBody},
	"listLegalEntities":       {action: "legal_entities.read"},
	"createSubscription":      {action: actionSubscriptionManage, body: requiredBody},
	"listSubscriptions":       {action: "subscriptions.read"},
	"listWebhooks":            {action: "subscriptions.read"},
	"listWebhookAttempts":     {action: "subscriptions.read", filters: []string{"limit"}},
	"getWebhookEndpoint":      {action: "subscriptions.read"},
	"deleteWebhookEndpoint":   {action: actionSubscriptionManage},
	"setWebhookEndpoint":      {action: actionSubscriptionManage, body: requiredBody},
	"rotateWebhookSecret":     {action: actionSubscriptionManage},
	"testWebhook":             {action: actionSubscriptionManage},
	"getSubscription":         {action: "subscriptions.read"},
	"deleteSubscription":      {action: actionSubscriptionManage},
	"changeSubscription":      {action: actionSubscriptionManage, body: requiredBody},
	"pauseSubscription":       {action: actionSubscriptionManage},
	"resumeSubscription":      {action: actionSubscriptionManage},
	"resetSubscription":       {action: actionSubscriptionManage, body: requiredBody},
	"pollSubscription":        {action: actionSubscriptionConsume, filters: []string{"limit", "wait_ms", "consumer"}},
	"acknowledgeEvents":       {action: actionSubscriptionConsume, body: requiredBody, batch: true},
	"refuseEvents":            {action: actionSubscriptionConsume, body: requiredBody, batch: true},
	"listParkedMessages":      {action: "subscriptions.read", filters: []string{"legal_entity", "code", "limit", "cursor"}},
	"listParkedGroups":        {action: "subscriptions.read"},
	"getParkedMessage":        {action: "subscriptions.read"},
	"replayParkedMessages":    {action: actionSubscriptionManage, body: requiredBody, batch: true},
	"discardParkedMessages":   {action: actionSubscriptionManage, body: requiredBody, batch: true},
	"listParkedDecisions":     {action: "subscriptions.read", filters: []string{"limit"}},
	"requestErasure":          {action: "erasure.request", body: requiredBody},
	"listErasureRequests":     {action: "erasure.read", filters: []string{"status", "limit"}},
	"getErasureRequest":       {action: "erasure.read"},
	"approveErasureRequest":   {action: actionApproveErase, body: optionalBody},
	"rejectErasureRequest":    {action: actionApproveErase, body: requiredBody},
	"withdrawErasureRequest":  {action: "erasure.request", body: requiredBody},
	"getErasureCertificate":   {action: "erasure.read"},
	"placeLegalHold":          {action: "holds.place", body: requiredBody},
	"listLegalHolds":          {action: "holds.read", filters: []string{"subject"}},
	"releaseLegalHold":        {action: "holds.release"},
	"getMetrics":              {}, // scraped like the health checks; it names no person and no document
	"getDocument":             {},
	"getLiveness":             {},
	"getReadiness":            {},
}

// rawParameter asks for events as they are stored.
const rawParameter = "raw"

// guard is the first half of the order of checks: authenticated, allowed,
// well-formed and within the limits. Nothing of a body is read before its sender
// is known and may do such a thing at all.
func (s *Server) guard(op operation) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			ctx := c.Request().Context()
			this := callOf(ctx)
			this.route = c.Path()
			if op.action != "" {
				this.token = tokenOf(c.Request())
				p, err := s.config.Access.Authenticate(ctx, this.token)
				if err != nil {
					return err
				}
				this.principal = p
				if err := s.config.Access.Authorize(ctx, p, firstQuestion(op.action)); err != nil {
					return err
				}
			}
			if op.action != "" {
				if err := checkAddress(c.Request().URL); err != nil {
					return err
				}
			}
			if op.action != "" && !op.checks {
				for name := range c.QueryParams() {
					if !slices.Contains(op.filters, name) {
						return fault.New(fault.Invalid, "request.parameter_unknown", "there is no such parameter here; GET /api/openapi.yaml lists them").WithField(name)
					}
				}
			}
			if isFeed(c) {
				this.request = c.Request()
			}
			if op.events {
				switch c.QueryParam(rawParameter) {
				case "", "false":
				case "true":
					this.raw = true
				default:
					return badParameter(rawParameter, "true or false")
				}
			}
			if op.body == noBody {
				return next(c)
			}
			buffer := buffers.Get().(*bodyBuffer)
			defer buffer.release()
			if err := s.read(c, buffer, op); err != nil {
				return err
			}
			this.body = buffer.Bytes()
			return next(c)
		}
	}
}

// checkAddress refuses a path and query that cannot be read, before anybody acts
// on the part that can: a filter that is silently dropped would show more than was
// asked for. No id, code or name that is stored holds U+0000 or bytes that are not
// UTF-8.
func checkAddress(u *url.URL) error {
	if !readable(u.Path) {
		return fault.New(fault.Invalid, "request.path_invalid", "the path holds U+0000 or bytes that are not UTF-8; correct it")
	}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fault.New(fault.Invalid, "request.query_malformed",
			"the query cannot be read; percent-encode values and join parameters by &")
	}
	for name, values := range params {
		if !readable(name) {
			return fault.New(fault.Invalid, "request.query_malformed",
				"the name of a parameter holds U+0000 or bytes that are not UTF-8; correct it")
		}
		if slices.ContainsFunc(values, func(v string) bool { return !readable(v) }) {
			return badParameter(name, "text in UTF-8 without U+0000")
		}
	}
	return nil
}

func readable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// firstQuestion asks whether the caller may do such a thing anywhere. For raw
// appends that is: an event of a type that no built-in module owns. The legal
// entity and the types follow once the body has been read.
func firstQuestion(action string) tenancy.Action {
	a := tenancy.Action{Name: action}
	if action == actionAppend {
		a.EventTypes = []tenancy.TypeAccess{{}}
	}
	return a
}

const actionAppend = "events.append"

// bearer takes the token out of the header; "" if there is none.
func bearer(header string) string {
	scheme, token, found := strings.Cut(header, " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// enter checks that the caller may do the action in a legal entity and finds it.
// One that the caller may not see is as unknown as one that does not exist.
func (s *Server) enter(ctx context.Context, action, code string, types ...tenancy.TypeAccess) (ports.LegalEntity, error) {
	p := callOf(ctx).principal
	if err := s.config.Access.Authorize(ctx, p, tenancy.Action{Name: action, LegalEntity: code, EventTypes: types}); err != nil {
		return ports.LegalEntity{}, err
	}
	return s.config.Access.LegalEntity(ctx, p.TenantID, code)
}

// within calls f with the legal entity that is named, or with those that the
// caller may see, one after the other, until f does not answer with the code that
// says it has no such thing.
func (s *Server) within(ctx context.Context, action, code, notFound string, f func(ports.LegalEntity) error) error {
	if code != "" {
		le, err := s.enter(ctx, action, code)
		if err != nil {
			return err
		}
		return f(le)
	}
	visible, err := s.visible(ctx)
	if err != nil {
		return err
	}
	last := error(fault.New(fault.NotFound, notFound, "nothing you may see has this id; check the id, or ask for the right to see its legal entity"))
	for _, le := range visible {
		if last = f(le); fault.CodeOf(last) != notFound {
			return last
		}
	}
	return last
}

// visible lists the legal entities that the caller may see.
func (s *Server) visible(ctx context.Context) ([]ports.LegalEntity, error) {
	p := callOf(ctx).principal
	all, err := s.config.Access.LegalEntities(ctx, p.TenantID)
	if err != nil || len(p.LegalEntities) == 0 {
		return all, err
	}
	entitled := make(map[string]bool, len(p.LegalEntities))
	for _, code := range p.LegalEntities {
		entitled[code] = true
	}
	out := make([]ports.LegalEntity, 0, len(p.LegalEntities))
	for _, le := range all {
		if entitled[le.Code] {
			out = append(out, le)
		}
	}
	return out, nil
}

func callerOf(ctx context.Context) pipeline.Caller {
	p := callOf(ctx).principal
	return pipeline.Caller{Principal: p, Actor: tenancy.Actor(p)}
}
