package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// sealingStub seals and opens with one key. The value "erased" belongs to a person whose
// key is destroyed.
type sealingStub struct {
	key shredding.Key

	mu    sync.Mutex
	opens int
	err   error
}

func newSealingStub(t testing.TB) *sealingStub {
	t.Helper()
	key, err := shredding.NewKey(shredding.KeyStandard, 1, bytes.Repeat([]byte{7}, shredding.DEKSize))
	require.NoError(t, err)
	return &sealingStub{key: key}
}

// seal replaces the value at a pointer, if it is there.
func (s *sealingStub) seal(document []byte, at shredding.Location, pointer string) []byte {
	subject := shredding.Subject("person:P-1")
	if bytes.Contains(document, []byte(`"erased"`)) {
		subject = "person:P-0"
	}
	sealed, err := shredding.SealDocument(nil, document, []shredding.Field{{Pointer: pointer, Class: shredding.Contact, Subject: subject}},
		func(f shredding.Field, value []byte) (shredding.Envelope, error) {
			at.Pointer = f.Pointer
			return shredding.Seal(s.key, at, f.Subject, value)
		})
	if err != nil {
		return document
	}
	return sealed
}

// Open implements httpapi.Personal.
func (s *sealingStub) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opens++
	if s.err != nil {
		return s.err
	}
	shown := module.Opened{Subject: "person:P-1", Class: shredding.Contact}
	for i, d := range documents {
		opened, err := shredding.OpenDocument(nil, d.Document, func(v shredding.Sealed) (shredding.Answer, error) {
			at := d.At
			at.Pointer = v.Pointer
			if v.Origin != nil {
				if at = *v.Origin; at.Partition != d.At.Partition {
					return shredding.Answer{}, fault.New(fault.Internal, "pii.unsealable", "the copy is of another legal entity")
				}
			}
			switch {
			case !r.Reads(at.Type, shredding.Contact):
				return shredding.Withheld(), nil
			case v.Subject == "person:P-0":
				return shredding.Destroyed(), nil
			}
			shown.Partition = at.Partition
			shown.Values++
			plain, err := shredding.Open(s.key, at, v.Subject, v.Envelope)
			return shredding.Clear(plain), err
		})
		if err != nil {
			return err
		}
		documents[i].Document = opened
	}
	if shown.Values == 0 {
		return nil
	}
	return r.Disclose(ctx, []module.Opened{shown})
}

func (s *sealingStub) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.opens = 0 }()
	return s.opens
}

func (s *sealingStub) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// sealedLog is a log with sealed notes.
type sealedLog struct {
	log  httpapi.Events
	safe *sealingStub
}

func (l sealedLog) seal(events []event.Recorded) {
	for i := range events {
		e := &events[i]
		at := shredding.Location{Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion}
		e.Payload = l.safe.seal(l.safe.seal(e.Payload, at, "/data/note"), at, "/data/text")
	}
}

func (l sealedLog) ByID(ctx context.Context, le ports.LegalEntity, id event.ID) (event.Recorded, error) {
	e, err := l.log.ByID(ctx, le, id)
	one := []event.Recorded{e}
	l.seal(one)
	return one[0], err
}

func (l sealedLog) Events(ctx context.Context, sel query.Selection) (query.Page, error) {
	page, err := l.log.Events(ctx, sel)
	l.seal(page.Events)
	return page, err
}

func (l sealedLog) Stream(ctx context.Context, q query.StreamQuery) (query.StreamPage, error) {
	page, err := l.log.Stream(ctx, q)
	l.seal(page.Events)
	return page, err
}

func (l sealedLog) Feed(ctx context.Context, q query.FeedQuery) (query.Page, error) {
	page, err := l.log.Feed(ctx, q)
	l.seal(page.Events)
	return page, err
}

func (l sealedLog) Lineage(ctx context.Context, le ports.LegalEntity, codes []string, id event.ID) (query.Lineage, error) {
	found, err := l.log.Lineage(ctx, le, codes, id)
	l.seal(found.Events)
	return found, err
}

// sealedIntents are intents with sealed texts.
type sealedIntents struct {
	httpapi.Intents
	safe *sealingStub
}

func (i sealedIntents) Get(ctx context.Context, le ports.LegalEntity, id event.ID) (intent.Intent, pipeline.Outcome, error) {
	stored, outcome, err := i.Intents.Get(ctx, le, id)
	at := module.LocationOf(&stored)
	stored.Payload = i.safe.seal(stored.Payload, at, "/text")
	return stored, outcome, err
}

// sealedReports keep a copy of a page's text.
type sealedReports struct{ safe *sealingStub }

func (r sealedReports) Query(_ context.Context, q query.ReportQuery) (ports.Report, error) {
	at := shredding.Location{Partition: q.Entity.Partition, Kind: shredding.KindEvent, Record: event.ID{1}, Type: "note.page.added", SchemaVersion: 1, Pointer: "/data/text"}
	rows := make([]any, 2)
	for i, text := range []string{`"call <Ada>"`, `"erased"`} {
		subject := shredding.Subject("person:P-1")
		if i == 1 {
			subject = "person:P-0"
		}
		envelope, err := shredding.Seal(r.safe.key, at, subject, []byte(text))
		if err != nil {
			return ports.Report{}, err
		}
		copied := shredding.Sealed{Envelope: envelope, Subject: subject, Origin: &at}
		rows[i] = map[string]any{"number": "P-1", "text": json.RawMessage(copied.Append(nil))}
	}
	return ports.Report{Rows: rows}, nil
}

// startSealedAPI serves sealed contents; without keys they stay sealed.
func startSealedAPI(t *testing.T, keys *sealingStub) *apiFixture {
	t.Helper()
	return startAPI(t, func(c *httpapi.Config) {
		vault := keys
		if vault == nil {
			vault = newSealingStub(t)
		} else {
			c.Personal = vault
		}
		c.Events = sealedLog{c.Events, vault}
		c.Intents = sealedIntents{c.Intents, vault}
		c.Reports = sealedReports{vault}
	})
}

// personalRecords appends events of a type that no built-in module owns, and an
// intent with one of a type that one does.
func (h *apiFixture) personalRecords(t *testing.T) (machine, intentID string) {
	t.Helper()
	h.machineType(t)
	note := func(text string) string {
		return strings.Replace(serviced(""), `{"hours":2.5}`, `{"hours":2.5,"note":"`+text+`"}`, 1)
	}
	first := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: `{"events":[` + note("call <Ada>") + `,` + note("erased") + `,` + serviced("") + `]}`})
	require.Equal(t, http.StatusCreated, first.status, string(first.body))
	machine = first.json(t)["events"].([]any)[0].(map[string]any)["id"].(string)
	page := h.do(t, testRequest{method: "POST", path: "/api/intents", token: "ap_clerk",
		body: `{"type":"note.add_page","legal_entity":"USMF","payload":{"number":"P-1","text":"call <Ada>"}}`})
	require.Equal(t, http.StatusCreated, page.status, string(page.body))
	return machine, page.json(t)["intent_id"].(string)
}

func TestPersonalValuesByReader(t *testing.T) {
	t.Parallel()
	keys := newSealingStub(t)
	h := startSealedAPI(t, keys)
	machine, intentID := h.personalRecords(t)
	for _, c := range []struct {
		name, path, token string
		shown             []string
		opens             int
	}{
		{"event", "/api/events/" + machine, "module", []string{`"note":"call <Ada>"`}, 1},
		{"event", "/api/events/" + machine, "auditor", []string{`"note":"[MASKED]"`}, 1},
		{"a business role on a foreign type", "/api/events/" + machine, "controller", []string{`"note":"[MASKED]"`}, 1},
		{"lineage", "/api/events/" + machine + "/lineage", "module", []string{`"note":"call <Ada>"`}, 1},
		{"page", "/api/events?stream_type=scope&stream_id=USMF", "module", []string{`"note":"call <Ada>"`, `"note":"[REDACTED]"`, `"hours":2.5}`, `"text":"[MASKED]"`}, 1},
		{"page", "/api/events?stream_type=scope&stream_id=USMF", "ap_clerk", []string{`"note":"[MASKED]"`, `"text":"call <Ada>"`}, 1},
		{"export", "/api/events/export?stream_type=scope&stream_id=USMF", "module", []string{`"note":"call <Ada>"`, `"note":"[REDACTED]"`, `"text":"[MASKED]"`}, 1},
		{"export", "/api/events/export?stream_type=scope&stream_id=USMF", "auditor", []string{`"note":"[MASKED]"`, `"text":"[MASKED]"`}, 1},
		{"stream", "/api/streams/machine/M-17?legal_entity=USMF", "module", []string{`"note":"call <Ada>"`, `"note":"[REDACTED]"`}, 1},
		{"stream", "/api/streams/machine/M-17?legal_entity=USMF&direction=backward", "controller", []string{`"note":"[MASKED]"`}, 1},
		{"all", "/api/streams/$all", "ap_clerk", []string{`"note":"[MASKED]"`, `"text":"call <Ada>"`}, 1},
		{"page without any", "/api/events?stream_type=scope&stream_id=DEMF", "module", []string{`"events":[]`}, 0},
		{"intent", "/api/intents/" + intentID, "controller", []string{`"payload":{"number":"P-1","text":"call <Ada>"}`}, 1},
		{"intent", "/api/intents/" + intentID, "admin", []string{`"payload":{"number":"P-1","text":"[MASKED]"}`}, 1},
		{"report", "/api/note/pages?legal_entity=USMF", "ap_clerk", []string{`"text":"call <Ada>"`, `"text":"[REDACTED]"`}, 1},
		{"report", "/api/note/pages?legal_entity=USMF", "auditor", []string{`"text":"[MASKED]"},{"number":"P-1","text":"[MASKED]"}`}, 1},
	} {
		keys.count()
		a := h.do(t, testRequest{method: "GET", path: c.path, token: c.token})
		require.Equal(t, http.StatusOK, a.status, "%s: %s", c.name, a.body)
		for _, want := range c.shown {
			require.Contains(t, string(a.body), want, "%s by %s", c.name, c.token)
		}
		require.NotContains(t, string(a.body), "$pii")
		require.Equal(t, c.opens, keys.count(), "%s by %s: one batch of keys for the whole answer", c.name, c.token)
	}
}

// An outage is a temporary error, whatever code the service gives it, and never looks
// like an erasure.
func TestKeyServiceOutage(t *testing.T) {
	t.Parallel()
	keys := newSealingStub(t)
	h := startSealedAPI(t, keys)
	machine, intentID := h.personalRecords(t)
	for code, err := range map[string]error{
		"kms.unavailable":     fault.New(fault.Unavailable, "kms.unavailable", "the key service is away; try again"),
		"kms.key_unusable":    fault.New(fault.FailedPrecondition, "kms.key_unusable", "the key is scheduled for deletion; tell an operator"),
		"keys.unavailable":    fault.New(fault.Unavailable, "keys.unavailable", "the key store is away; try again"),
		"pii.receipts_behind": fault.New(fault.Unavailable, "pii.receipts_behind", "the store may have forgotten erasures; tell an operator"),
	} {
		keys.fail(err)
		for _, path := range []string{"/api/events/" + machine, "/api/events?stream_type=scope&stream_id=USMF", "/api/events/export?stream_type=scope&stream_id=USMF", "/api/streams/$all", "/api/streams/machine/M-17?legal_entity=USMF", "/api/events/" + machine + "/lineage", "/api/intents/" + intentID, "/api/note/pages?legal_entity=USMF"} {
			a := h.do(t, testRequest{method: "GET", path: path, token: "ap_clerk"})
			require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
			require.Equal(t, code, a.json(t)["code"])
			require.NotEmpty(t, a.header.Get("Retry-After"))
			require.NotContains(t, string(a.body), "REDACTED")
		}
	}
	keys.fail(fault.New(fault.Internal, "pii.unsealable", "a value does not open; tell an operator"))
	require.Equal(t, http.StatusInternalServerError, h.do(t, testRequest{method: "GET", path: "/api/events/" + machine, token: "module"}).status)
	keys.fail(nil)
	require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "GET", path: "/api/events/" + machine, token: "module"}).status)
}

func TestPersonalValuesWithoutKeys(t *testing.T) {
	t.Parallel()
	h := startSealedAPI(t, nil)
	machine, intentID := h.personalRecords(t)
	for _, path := range []string{"/api/events/" + machine, "/api/intents/" + intentID, "/api/note/pages?legal_entity=USMF"} {
		a := h.do(t, testRequest{method: "GET", path: path, token: "module"})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Contains(t, string(a.body), shredding.Masked)
		require.NotContains(t, string(a.body), "$pii")
	}
}
