package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
)

var feedHandlers = handlers{
	"subscribeToStream": (*Server).subscribeToStream,
	"subscribeToAll":    (*Server).subscribeToAll,
}

const actionSubscribe = "events.subscribe"

// The paths of live feeds.
const (
	pathFeeds      = "/api/subscribe/"
	pathFeedAll    = "/api/subscribe/streams/$all"
	pathFeedStream = "/api/subscribe/streams/:type/:id"
	feedProtocol   = "backbone.v1" // the WebSocket subprotocol
	bearerProtocol = "bearer."     // the prefix of the subprotocol that carries an access token
)

// Live serves feeds: live.Service.
type Live interface {
	// Enter counts a new feed of the principal and of the server, and refuses one over their
	// limits with feed.too_many. The caller calls leave when the feed has ended.
	Enter(principal string) (leave func(), err error)
	Run(ctx context.Context, f live.Feed) error
	// Close ends all feeds and refuses new ones.
	Close(ctx context.Context) error
}

// LiveConfig is what live feeds need.
type LiveConfig struct {
	Feeds *query.Feeds // positions in the log to follow; nil: feed.not_served
	Live  Live
	// Origins are the hosts, besides the server's own, whose pages may open WebSockets,
	// as patterns of path.Match.
	Origins []string
	LiveLimits
}

// LiveLimits bound a live feed. Both must be positive.
type LiveLimits struct {
	WriteTimeout time.Duration // for a reader to receive one write; a slower reader loses its feed
	Batch        int           // events of one page
}

// isFeed reports whether the answer is a feed, which is neither compressed nor buffered.
func isFeed(c echo.Context) bool { return strings.HasPrefix(c.Request().URL.Path, pathFeeds) }

// skipsCompression reports whether the answer is sent uncompressed.
func skipsCompression(c echo.Context) bool {
	return isProbe(c) || isFeed(c) || refusesGzip(c.Request())
}

// refusesGzip reports whether the request names gzip with weight 0, as RFC 9110 has it.
// Echo's middleware only searches for the word gzip.
func refusesGzip(r *http.Request) bool {
	for _, line := range r.Header.Values(echo.HeaderAcceptEncoding) {
		for coding := range strings.SplitSeq(line, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			if name, value, found := strings.Cut(weight, "="); found && strings.EqualFold(strings.TrimSpace(name), "q") {
				q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
				return err == nil && q == 0
			}
		}
	}
	return false
}

// wantsWebSocket reports which transport the request asks for.
func wantsWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get(echo.HeaderUpgrade), "websocket")
}

// tokenOf returns the access token of a request. Browsers cannot set headers of a
// WebSocket, so there the token may be one of the subprotocols. It is never in the URL,
// which logs keep.
func tokenOf(r *http.Request) string {
	if h := r.Header.Get(echo.HeaderAuthorization); h != "" || !strings.HasPrefix(r.URL.Path, pathFeeds) || !wantsWebSocket(r) {
		return bearer(h)
	}
	for _, p := range subprotocols(r) {
		if token, found := strings.CutPrefix(p, bearerProtocol); found {
			return token
		}
	}
	return ""
}

func subprotocols(r *http.Request) (out []string) {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			out = append(out, strings.TrimSpace(p))
		}
	}
	return out
}

// liveFeed is an open feed, over either transport.
type liveFeed struct {
	server             *Server
	ctx                context.Context
	request            *http.Request
	open               func(from string, given bool) (accessAwareSource, error)
	entities           []string // legal entities that the caller named; it must keep the right to each
	followsAll         bool     // the caller named no legal entity: all that it may see
	batch              int      // events of one page
	withoutData        bool     // without payloads
	cursorsAreVersions bool     // cursors are versions of a stream
	from               string
	hasFrom            bool
	source             accessAwareSource
	leave              func()
}

// accessAwareSource is a source that applies changes of the caller's rights.
type accessAwareSource interface {
	live.Source
	UpdateAccess(ctx context.Context, readable, roles []string) error
}

// subscribeToStream answers GET /api/subscribe/streams/{type}/{id}.
func (s *Server) subscribeToStream(ctx context.Context, r *request) (any, error) {
	le, err := s.authorizeIn(ctx, actionSubscribe, r.query("legal_entity"))
	if err != nil {
		return nil, err
	}
	f := &liveFeed{server: s, ctx: ctx, cursorsAreVersions: true, entities: []string{le.Code}}
	f.open = func(from string, resumed bool) (accessAwareSource, error) {
		q := query.StreamFollowQuery{Entity: le, Stream: r.stream(), Roles: rolesOf(ctx), OnlyNew: from == query.FromNow && !resumed}
		if from != "" && !q.OnlyNew {
			n, err := strconv.ParseUint(from, 10, 63)
			if err != nil {
				return nil, invalidParameter("from", "a version such as 4, or now")
			}
			q.From = event.Version(n)
			if resumed {
				q.From++
			}
		}
		return s.config.Live.Feeds.Stream(q), nil
	}
	return f, f.checkAdmission(r)
}

// subscribeToAll answers GET /api/subscribe/streams/$all.
func (s *Server) subscribeToAll(ctx context.Context, r *request) (any, error) {
	p := callOf(ctx).principal
	filter, err := feedFilter(r)
	if err != nil {
		return nil, err
	}
	for _, code := range filter.LegalEntities {
		if _, err := s.authorizeIn(ctx, actionSubscribe, code); err != nil {
			return nil, pointAtMember(err, "legal_entities")
		}
	}
	if len(filter.EventTypes) > 0 {
		if err := s.requireTypes(ctx, "event_types", filter.EventTypes...); err != nil {
			return nil, err
		}
	}
	if len(filter.Modules) > 0 {
		if err := s.checkAgainstRegistry(ctx, &query.Selection{Modules: filter.Modules}); err != nil {
			return nil, err
		}
	}
	q := query.AllQuery{TenantID: p.TenantID, Readable: p.LegalEntities, Filter: filter, ModuleOf: s.moduleOf(p.TenantID)}
	f := &liveFeed{server: s, ctx: ctx, entities: filter.LegalEntities, followsAll: len(filter.LegalEntities) == 0}
	f.open = func(from string, _ bool) (accessAwareSource, error) {
		q := q
		q.From = from
		return s.config.Live.Feeds.All(q)
	}
	return f, f.checkAdmission(r)
}

// feedFilter reads the filter of a feed from the parameters, which are the members of a subscription.
func feedFilter(r *request) (subscription.Filter, error) {
	f := subscription.Filter{
		EventTypes: r.list("event_types"), LegalEntities: r.list("legal_entities"), Modules: r.list("modules"), Divisions: r.list("divisions"),
		Regions: r.list("regions"), Sites: r.list("sites"), Tags: r.list("tags"), StreamTypes: r.list("stream_types"), Streams: r.list("streams"),
	}
	for _, scope := range r.list("custom") {
		name, value, found := strings.Cut(scope, "=")
		if !found {
			return f, invalidParameter("custom", "names and values of custom scopes such as cost_center=CC-1, separated by commas")
		}
		if f.Custom == nil {
			f.Custom = map[string][]string{}
		}
		f.Custom[name] = append(f.Custom[name], value)
	}
	err := f.Check()
	if refused, ok := fault.As(err); ok {
		name, _, _ := strings.Cut(strings.TrimPrefix(refused.Field, "/"), "/")
		return f, refused.WithField(name)
	}
	return f, err
}

// requireTypes refuses types that are not registered: a feed of a misspelt type would
// send nothing, and an empty page would look as if the log held no such events.
func (s *Server) requireTypes(ctx context.Context, field string, types ...string) error {
	unknown, err := s.config.Types.FindUnregistered(ctx, callOf(ctx).principal.TenantID, types)
	if err != nil {
		return err
	}
	sight, err := module.SightOf(ctx)
	if err == nil && (len(unknown) > 0 || slices.ContainsFunc(types, func(t string) bool { return !sight.Sees(t) })) {
		err = unknownType(field)
	}
	return err
}

// moduleOf returns a function that names the module of an event type. It looks types up when they
// occur, because they may be registered while the feed runs.
func (s *Server) moduleOf(tenantID string) func(context.Context, string) (string, error) {
	known := map[string]string{}
	return func(ctx context.Context, eventType string) (string, error) {
		if owner, ok := known[eventType]; ok {
			return owner, nil
		}
		owner := s.config.Catalog.Owner(eventType)
		if owner == "" {
			versions, err := s.config.Types.ListVersions(ctx, tenantID, eventType)
			if err != nil {
				return "", err
			}
			owner = versions[0].Module
		}
		known[eventType] = owner
		return owner, nil
	}
}

// checkAdmission opens the feed's source and counts the feed (Live.Enter). It refuses before
// the answer's status is sent; afterwards a problem can only be a message of the feed.
func (f *liveFeed) checkAdmission(r *request) (err error) {
	c := f.server.config.Live
	current := callOf(f.ctx)
	f.request, f.batch = current.feedRequest, c.Batch
	if f.withoutData = r.withoutData(); r.err != nil {
		return r.err
	}
	f.from, f.hasFrom = r.query("from"), f.request.URL.Query().Has("from")
	resumed := false
	if id := f.request.Header.Get("Last-Event-ID"); id != "" && !wantsWebSocket(f.request) {
		f.from, f.hasFrom, resumed = id, true, true
	}
	if f.source, err = f.open(f.from, resumed); err != nil {
		return err
	}
	if wantsWebSocket(f.request) {
		if err := f.server.checkHandshake(f.request); err != nil {
			return err
		}
	} else if a := f.request.Header.Get(echo.HeaderAccept); a != "" && !strings.Contains(a, "text/event-stream") && !strings.Contains(a, "*/*") {
		return fault.New(fault.Invalid, "feed.transport_missing", "a feed is sent as Accept: text/event-stream, or over a WebSocket; ask for one of them")
	}
	if f.leave, err = c.Live.Enter(current.principal.TenantID + "/" + current.principal.PrincipalID); err != nil {
		return err
	}
	if err := f.checkPosition(); err != nil {
		f.leave()
		return err
	}
	return nil
}

// checkPosition refuses a position that the log cannot continue from, with a status. The
// feed itself starts at the same position afterwards, so no event between the two is
// lost. Failures of the server are left to the feed: browsers reconnect after its
// message, and never after a status of 503. A WebSocket is refused by a message, because
// browsers hide the status from its clients.
func (f *liveFeed) checkPosition() error {
	if wantsWebSocket(f.request) {
		return nil
	}
	ctx, cancel := context.WithTimeout(f.ctx, positionTimeout)
	defer cancel()
	_, err := f.source.Start(ctx)
	switch {
	case fault.KindOf(err) == fault.Unavailable, fault.KindOf(err) == fault.Timeout, ctx.Err() != nil && f.ctx.Err() == nil:
		return nil
	}
	return err
}

// headerBytes bounds a request's headers. A cursor over all legal entities has 18 to 24
// bytes for each of them, and Last-Event-ID carries one: this is enough for 5,000.
const headerBytes = 128 << 10

// positionTimeout bounds checkPosition.
const positionTimeout = 10 * time.Second

// reauthorize checks the token and the rights again. Losing a legal entity ends the feed,
// so that no event is left out silently; new ones join it.
func (f *liveFeed) reauthorize(ctx context.Context) error {
	current, access := callOf(f.ctx), f.server.config.Access
	p, err := access.Authenticate(ctx, current.token)
	if err != nil {
		return err
	}
	if err := access.Authorize(ctx, p, actionAnywhere(actionSubscribe)); err != nil {
		return err
	}
	for _, code := range f.entities {
		if err := access.Authorize(ctx, p, tenancy.Action{Name: actionSubscribe, LegalEntity: code}); err != nil {
			return err
		}
	}
	if f.followsAll && hasShrunk(current.principal.LegalEntities, p.LegalEntities) {
		return fault.New(fault.Forbidden, "feed.rights_changed", "you may no longer see all legal entities of this feed; connect again with the last cursor to go on with the others")
	}
	current.principal = p
	return f.source.UpdateAccess(ctx, p.LegalEntities, p.Roles)
}

// hasShrunk reports whether a set of legal entities lost a member; an empty set is all of
// them.
func hasShrunk(before, now []string) bool {
	if len(now) == 0 {
		return false
	}
	return len(before) == 0 || slices.ContainsFunc(before, func(code string) bool { return !slices.Contains(now, code) })
}

// run serves the feed over a sink.
func (f *liveFeed) run(ctx context.Context, transport string, sink live.Sink) error {
	return f.server.config.Live.Live.Run(ctx, live.Feed{
		Transport: transport, Source: f.source, Sink: sink, Batch: f.batch,
		Expires: callOf(f.ctx).principal.ExpiresAt, CheckAccess: f.reauthorize,
	})
}

// positionAge is the age from which a feed looks for an event in the global log. Younger ones are not there yet, and the
// readers of a feed have them in common: each would ask for itself.
const positionAge = 500 * time.Millisecond

// renderEach renders each event of a page into one document, on one line.
func (f *liveFeed) renderEach(ctx context.Context, events []event.Recorded) ([][]byte, error) {
	aged := time.Now().Add(-positionAge)
	first := slices.IndexFunc(events, func(e event.Recorded) bool { return e.RecordedAt.After(aged) })
	if first < 0 {
		first = len(events)
	}
	w, err := f.server.renderWithPositions(ctx, events, events[:first])
	if err != nil {
		return nil, err
	}
	w.withoutData = f.withoutData
	ends := make([]int, len(w.prepared))
	for i := range w.prepared {
		w.line(&w.prepared[i])
		ends[i] = len(w.b)
	}
	out, from := make([][]byte, len(w.prepared)), 0
	for i, end := range ends {
		out[i], from = w.b[from:end:end], end
	}
	return out, w.err
}

// appendPosition appends the member with the position of the feed.
func (f *liveFeed) appendPosition(b []byte, cursor string) []byte {
	if f.cursorsAreVersions {
		return append(append(b, `"version":`...), cursor...)
	}
	return append(append(append(b, `"cursor":"`...), cursor...), '"')
}

// problemDocument renders the reason why a feed ended.
func (f *liveFeed) problemDocument(err error) (body []byte, status int, code string) {
	p, _ := f.server.problemOf(f.ctx, err)
	body, failed := p.encode(nil)
	if failed != nil {
		body = []byte(`{"type":"/problems/internal","title":"Internal Server Error","status":500,"code":"internal","detail":"something failed that was not foreseen; connect again with the last cursor"}`)
	}
	return body, p.Status, p.Code
}

// closeFeeds ends the feeds and waits until their readers are notified.
func (s *Server) closeFeeds(ctx context.Context) error {
	if s.config.Live.Live == nil {
		return nil
	}
	return s.config.Live.Live.Close(ctx)
}

var _ accessAwareSource = (*query.AllFeed)(nil)

// mayOpenWebSocket reports whether the page that sent the request may open a WebSocket.
// Programs, which send no Origin, may.
func mayOpenWebSocket(r *http.Request, patterns []string) bool {
	origin := r.Header.Get(echo.HeaderOrigin)
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	return strings.EqualFold(u.Host, r.Host) || matchesAny(patterns, u.Host)
}
