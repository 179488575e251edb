package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// object is JSON to send.
type object = map[string]any

// client speaks plain HTTP as one persona.
type client struct {
	server, token string
	http          *http.Client
}

// transport keeps a connection for each of many callers at once.
var transport = &http.Transport{MaxIdleConnsPerHost: 128, IdleConnTimeout: time.Minute}

func clientOf(d devFile, persona string) client {
	return client{server: d.HTTP, token: d.Tokens[persona], http: &http.Client{Transport: transport, Timeout: 2 * time.Minute}}
}

func (d *dev) as(t *testing.T, persona string) client {
	t.Helper()
	require.NotEmpty(t, d.Tokens[persona], "no token for %s", persona)
	return clientOf(d.devFile, persona)
}

// command runs the binary against the client's server, as its persona.
func (c client) command(t *testing.T, args ...string) result {
	t.Helper()
	return command(t, c.environment(), args...)
}

// succeed runs a command that must succeed and returns its output.
func (c client) succeed(t *testing.T, args ...string) string {
	t.Helper()
	r := c.command(t, args...)
	require.Zero(t, r.code, r)
	return r.stdout
}

// environment makes commands use the client's server and token.
func (c client) environment() []string {
	return []string{"BACKBONE_SERVER=" + c.server, "BACKBONE_TOKEN=" + c.token}
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// decode reads the body, which must be JSON.
func (a answer) decode(into any) error {
	decoder := json.NewDecoder(bytes.NewReader(a.body))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%w: %s", err, a)
	}
	return nil
}

// code is that of a problem document, "" of anything else.
func (a answer) code() string {
	var p struct {
		Code string `json:"code"`
	}
	if a.decode(&p) != nil {
		return ""
	}
	return p.Code
}

// undecided is the code of an answer that asks to send the request again, since the machine was too busy
// to evaluate a policy in its time.
const undecided = "policy.undecided"

// do sends a request, again while the server is too busy to decide about it; header holds pairs.
func (c client) do(method, path, body string, header ...string) (answer, error) {
	for began := time.Now(); ; {
		a, err := c.once(method, path, body, header...)
		if err != nil || a.status != http.StatusServiceUnavailable || a.code() != undecided || time.Since(began) > endTime {
			return a, err
		}
	}
}

func (c client) once(method, path, body string, header ...string) (answer, error) {
	r, err := http.NewRequest(method, c.server+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, text}, err
}

// want sends a request, requires a status and decodes the answer.
func (c client) want(status int, into any, method, path, body string, header ...string) error {
	a, err := c.do(method, path, body, header...)
	if err != nil {
		return err
	}
	if a.status != status {
		return fmt.Errorf("%s %s answered %s instead of %d", method, path, a, status)
	}
	if into == nil {
		return nil
	}
	return a.decode(into)
}

// event has the members of an event of the API that tests use.
type event struct {
	ID            string `json:"id"`
	Type          string `json:"type"`
	SchemaVersion uint32 `json:"schema_version"`
	Sequence      string `json:"sequence"`
	Stream        struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Version int    `json:"version"`
	} `json:"stream"`
	Actor struct {
		ID string `json:"id"`
	} `json:"actor"`
	CausedBy      string          `json:"caused_by"`
	IntentID      string          `json:"intent_id"`
	CorrelationID string          `json:"correlation_id"`
	EffectiveDate string          `json:"effective_date"`
	Data          json.RawMessage `json:"data"`
	Metadata      struct {
		Source struct {
			System    string `json:"system"`
			Channel   string `json:"channel"`
			Reference string `json:"reference"`
		} `json:"source"`
		Checksum string `json:"checksum"`
	} `json:"metadata"`
}

// page reads one page.
func (c client) page(q url.Values) (events []event, next string, err error) {
	var p struct {
		Events     []event `json:"events"`
		HasMore    bool    `json:"has_more"`
		NextCursor string  `json:"next_cursor"`
	}
	if err := c.want(http.StatusOK, &p, "GET", "/api/events?"+q.Encode(), ""); err != nil {
		return nil, "", err
	}
	if !p.HasMore {
		p.NextCursor = ""
	} else if p.NextCursor == "" {
		return nil, "", fmt.Errorf("has_more without next_cursor: %v", q)
	}
	return p.Events, p.NextCursor, nil
}

// events reads all pages.
func (c client) events(q url.Values) ([]event, error) {
	var out []event
	if q.Get("limit") == "" {
		q.Set("limit", "1000")
	}
	for {
		events, next, err := c.page(q)
		if err != nil {
			return nil, err
		}
		out = append(out, events...)
		if next == "" {
			return out, nil
		}
		q.Set("cursor", next)
	}
}

// head is the sequence of the last event of a legal entity, "0" if there is none.
func (c client) head(entity string) (string, error) {
	events, _, err := c.page(url.Values{"stream_type": {"scope"}, "stream_id": {entity}, "direction": {"backward"}, "limit": {"1"}})
	if err != nil || len(events) == 0 {
		return "0", err
	}
	return events[0].Sequence, nil
}

// outcome is the answer to an intent.
type outcome struct {
	IntentID      string `json:"intent_id"`
	CorrelationID string `json:"correlation_id"`
	Status        string `json:"status"`
	PlanHash      string `json:"plan_hash"`
	Events        []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Sequence string `json:"sequence"`
		Stream   string `json:"stream"`
	} `json:"events"`
}

// event is the id of the outcome's first event of a type, "" if there is none.
func (o outcome) event(eventType string) string {
	for _, e := range o.Events {
		if e.Type == eventType {
			return e.ID
		}
	}
	return ""
}

// submit sends an intent.
func (c client) submit(entity, intentType string, payload any, header ...string) (answer, error) {
	body, err := json.Marshal(object{"type": intentType, "legal_entity": entity, "payload": payload})
	if err != nil {
		return answer{}, err
	}
	return c.do("POST", "/api/intents", string(body), header...)
}

// must submits an intent that is executed at once.
func (c client) must(t *testing.T, entity, intentType string, payload any) outcome {
	t.Helper()
	a, err := c.submit(entity, intentType, payload)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, a.status, "%s: %s", intentType, a)
	var out outcome
	require.NoError(t, a.decode(&out))
	return out
}
