package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

var ulids = regexp.MustCompile(`[0-7][0-9A-HJKMNP-TV-Z]{25}`)

// expectProblem compares a problem document with the committed one.
func expectProblem(t *testing.T, name string, a answer) {
	t.Helper()
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), a)
	var text bytes.Buffer
	require.NoError(t, json.Indent(&text, ulids.ReplaceAll(a.body, []byte("ULID")), "", "  "))
	text.WriteByte('\n')
	golden(t, "problems/"+name+".json", text.Bytes())
}

const (
	problemEntity = "USMF" // no other test writes to it
	machineType   = "equipment.machine.serviced"
)

// machineServiced is a valid event of machineType with the given data.
func machineServiced(entity, machine, data string) string {
	return fmt.Sprintf(`{"type":%q,"scope":{"legal_entity":%q},"stream":{"type":"machine","id":%q},"data":%s,"dimensions":{"department":"OPS"},"entities":[{"entity_type":"machine","entity_id":%q,"role":"subject"}]}`,
		machineType, entity, machine, data, machine)
}

func batch(events ...string) string { return `{"events":[` + strings.Join(events, ",") + `]}` }

// registerMachines registers machineType once per run.
func registerMachines(t *testing.T, d *dev) {
	t.Helper()
	a, err := d.as(t, "admin").do("POST", "/api/event-types", `{"type":"equipment.machine.serviced","schema_version":1,"module":"equipment",
		"data_schema":{"type":"object","properties":{"hours":{"type":"number","minimum":0},"filler":{"type":"array"}},"required":["hours"],"additionalProperties":false},
		"required_dimensions":["department"],"required_entity_refs":[{"entity_type":"machine","role":"subject","cardinality":"one"}],
		"examples":[{"hours":2.5}]}`)
	require.NoError(t, err)
	if a.status != http.StatusConflict {
		require.Equal(t, http.StatusCreated, a.status, a)
	}
}

// intentBody is the body of POST /api/intents with a payload as it is written.
func intentBody(intentType, payload string) string {
	return fmt.Sprintf(`{"type":%q,"legal_entity":%q,"payload":%s}`, intentType, problemEntity, payload)
}

// TestHostileRequests sends what the product must withstand to the real server. Each
// gets its own problem document, and nothing is written.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	d := sharedDev(t)
	registerMachines(t, d)
	d.as(t, "vendor_admin").must(t, problemEntity, "ap.register_vendor", object{"vendor_id": "V-ODD", "name": "Odd Ltd", "country": "US"})
	d.as(t, "controller").must(t, problemEntity, "gl.close_period", object{"module": "gl", "period": "2011-01", "level": "hard", "reason": "Audited"})
	waiting := pendingJournal(t, d)

	journal := func(date, account, debit, credit string) string {
		return fmt.Sprintf(`{"description":"Rent","posting_date":%q,"dimensions":{"department":"FIN"},"lines":[
			{"account":%q,"debit_credit":"debit","amount":%s},{"account":"1000","debit_credit":"credit","amount":%s}]}`, date, account, debit, credit)
	}
	paper := func(change object) string {
		payload := invoice("V-ODD", "O-1")
		for k, v := range change {
			payload[k] = v
		}
		text, err := json.Marshal(payload)
		require.NoError(t, err)
		return string(text)
	}
	amount := func(token string) string {
		return strings.Replace(paper(nil), `"total_amount":125`, `"total_amount":`+token, 1)
	}
	event := func(data string) string { return batch(machineServiced(problemEntity, "M-1", data)) }
	sound := machineServiced(problemEntity, "M-1", `{"hours":1}`)
	filler := `{"hours":1,"filler":["` + strings.Repeat(strings.Repeat("x", 60<<10)+`","`, 34) + `"]}`

	before, err := d.as(t, "auditor").head(problemEntity)
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		status int
		code   string
		as     string
		path   string
		body   string
	}{
		{"unknown_type", 404, "event_type.not_found", "module", "/api/events", strings.Replace(event(`{"hours":1}`), "serviced", "sold", 1)},
		{"schema_violation", 400, "append.schema_violation", "module", "/api/events", event(`{"hours":"two","colour":"red"}`)},
		{"dimension_missing", 400, "append.dimension_missing", "module", "/api/events", strings.Replace(event(`{"hours":1}`), `"department"`, `"cost_center"`, 1)},
		{"reference_missing", 400, "append.reference_missing", "module", "/api/events", strings.Replace(event(`{"hours":1}`), `"subject"`, `"witness"`, 1)},
		{"unknown_legal_entity", 404, "legal_entity.not_found", "module", "/api/events", strings.Replace(event(`{"hours":1}`), problemEntity, "XXXX", 1)},
		{"two_legal_entities", 400, "append.mixed_legal_entities", "module", "/api/events", batch(sound, machineServiced("DEMF", "M-1", `{"hours":1}`))},
		{"events_101", 413, "append.batch_too_large", "module", "/api/events", batch(strings.Split(strings.TrimSuffix(strings.Repeat(sound+"|", 101), "|"), "|")...)},
		{"event_2_mib", 413, "append.event_too_large", "module", "/api/events", event(filler)},
		{"nested_100_deep", 413, "json.too_deep", "module", "/api/events", event(`{"hours":1,"filler":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`)},
		{"duplicate_keys", 400, "json.duplicate_name", "module", "/api/events", event(`{"hours":1,"hours":2}`)},
		{"invalid_utf8", 400, "json.invalid_utf8", "module", "/api/events", event("{\"hours\":1,\"filler\":[\"\xff\"]}")},
		{"nan", 400, "json.malformed", "module", "/api/events", event(`{"hours":NaN}`)},
		{"sixteen_digits", 400, "json.number_out_of_range", "module", "/api/events", event(`{"hours":1234567890.123456}`)},
		{"wrong_token", 401, "auth.token_invalid", "", "/api/events", event(`{"hours":1}`)},

		{"intent_unknown_type", 404, "intent.type_unknown", "ap_clerk", "/api/intents", intentBody("ap.burn_invoice", "{}")},
		{"intent_schema_violation", 400, "intent.schema_invalid", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", `{"invoice_number":7}`)},
		{"intent_unknown_legal_entity", 404, "legal_entity.not_found", "ap_clerk", "/api/intents", strings.Replace(intentBody("ap.submit_invoice", paper(nil)), problemEntity, "XXXX", 1)},
		{"intent_unknown_dimension", 422, "gl.account.dimension_unknown", "gl_accountant", "/api/intents", strings.Replace(intentBody("gl.post_journal", journal("2026-03-15", "6000", "10", "10")), "FIN", "CIRCUS", 1)},
		{"intent_duplicate_keys", 400, "json.duplicate_name", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", `{"vendor_id":"V-ODD","vendor_id":"V-2"}`)},
		{"intent_nested_100_deep", 413, "json.too_deep", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100))},
		{"intent_invalid_utf8", 400, "json.invalid_utf8", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", "{\"invoice_number\":\"\xc3\x28\"}")},
		{"amount_nan", 400, "json.malformed", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", amount("NaN"))},
		{"amount_infinity", 400, "json.malformed", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", amount("-Infinity"))},
		{"amount_exponent", 400, "money.exponent", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", amount("1.25e2"))},
		{"amount_sixteen_digits", 400, "json.number_out_of_range", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", amount("12345678901234.56"))},
		{"amount_string", 400, "intent.schema_invalid", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", amount(`"125"`))},
		{"amount_scale", 400, "money.scale", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", amount("125.001"))},
		{"amount_negative_zero", 400, "money.negative_zero", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", amount("-0"))},
		{"total_mismatch", 400, "ap.invoice.total_mismatch", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", amount("125.01"))},
		{"unknown_vendor", 404, "ap.vendor.not_found", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", paper(object{"vendor_id": "V-UNKNOWN"}))},
		{"invoice_hard_closed", 422, "gl.period.hard_closed", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", paper(object{"invoice_date": "2011-01-15"}))},
		{"invoice_undefined_period", 422, "gl.period.undefined", "ap_clerk", "/api/intents", intentBody("ap.submit_invoice", paper(object{"posting_date": "2099-01-15"}))},
		{"journal_unbalanced", 400, "gl.journal.unbalanced", "gl_accountant", "/api/intents", intentBody("gl.post_journal", journal("2026-03-15", "6000", "10.00", "9.99"))},
		{"journal_hard_closed", 422, "gl.period.hard_closed", "gl_accountant", "/api/intents", intentBody("gl.post_journal", journal("2011-01-31", "6000", "10", "10"))},
		{"journal_unknown_account", 404, "gl.account.not_found", "gl_accountant", "/api/intents", intentBody("gl.post_journal", journal("2026-03-15", "9999", "10", "10"))},
		{"journal_control_account", 422, "gl.account.control_account", "gl_accountant", "/api/intents", intentBody("gl.post_journal", journal("2026-03-15", "2000", "10", "10"))},
		{"requester_approves", 403, "sod.same_person", "controller", "/api/intents/" + waiting + "/approve", `{}`},
		{"role_may_not", 403, "intent.forbidden", "approver", "/api/intents", intentBody("ap.submit_invoice", paper(nil))},
	} {
		t.Run(c.name, func(t *testing.T) {
			caller := client{server: d.HTTP, token: "bbk_01jwzx3v9k5t7q8r2m4n6p0abc_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", http: &http.Client{Transport: transport}}
			if c.as != "" {
				caller = d.as(t, c.as)
			}
			a, err := caller.do("POST", c.path, c.body)
			require.NoError(t, err)
			expectProblem(t, c.name, a)
			require.Equal(t, c.code, a.code(), a)
			require.Equal(t, c.status, a.status, a)
		})
	}
	t.Run("body_8_mib_announced", func(t *testing.T) {
		// Nothing of it is sent: what a client sends after the answer may break off the
		// connection before it reads that.
		connection := beginEvents(t, d, fmt.Sprintf("Content-Length: %d", 8<<20))
		defer func() { _ = connection.Close() }()
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		require.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
		var body bytes.Buffer
		_, err = body.ReadFrom(response.Body)
		require.NoError(t, err)
		expectProblem(t, "body_8_mib_announced", answer{response.StatusCode, response.Header, body.Bytes()})
	})
	t.Run("body_8_mib_while_sending", func(t *testing.T) { sendSlowly(t, d) })

	// Who may decide on nothing is refused too, and stands in the report.
	a, err := d.as(t, "ap_clerk").do("POST", "/api/intents/"+waiting+"/approve", `{}`)
	require.NoError(t, err)
	require.Equal(t, "auth.forbidden", a.code(), a)
	var report struct {
		Refusals []struct {
			Code string `json:"code"`
			Last string `json:"last_intent"`
		} `json:"refusals"`
	}
	require.NoError(t, d.as(t, "auditor").want(200, &report, "GET", "/api/sod/report?legal_entity="+problemEntity, ""))
	require.Contains(t, fmt.Sprint(report.Refusals), "{auth.forbidden "+waiting+"}")

	connection, err := pgx.Connect(t.Context(), d.DSN)
	require.NoError(t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	var written []string
	require.NoError(t, connection.QueryRow(t.Context(), `SELECT array_agg(DISTINCT type ORDER BY type) FROM backbone.events
		WHERE legal_entity = $1 AND sequence > $2::text::bigint`, problemEntity, before).Scan(&written))
	require.Equal(t, []string{"backbone.intent.decision_refused", "backbone.intent.refused"}, written, "nothing else was written")

	// What was refused can be read, and what waits can be let go.
	var stored struct {
		Status string `json:"status"`
	}
	require.NoError(t, d.as(t, "controller").want(200, &stored, "GET", "/api/intents/"+waiting, ""))
	require.Equal(t, "pending_approval", stored.Status)
	require.NoError(t, d.as(t, "cfo").want(200, &stored, "POST", "/api/intents/"+waiting+"/reject", `{"reason":"Not this year"}`))
	require.Equal(t, "rejected", stored.Status)
}

// pendingJournal leaves a journal over its preparer's limit waiting.
func pendingJournal(t *testing.T, d *dev) string {
	t.Helper()
	a, err := d.as(t, "controller").submit(problemEntity, "gl.post_journal", object{
		"description": "A large one", "posting_date": "2026-03-15", "dimensions": object{"department": "FIN"},
		"lines": []object{{"account": "6000", "debit_credit": "debit", "amount": 2000000}, {"account": "1000", "debit_credit": "credit", "amount": 2000000}},
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, a.status, a)
	var out outcome
	require.NoError(t, a.decode(&out))
	require.Equal(t, "pending_approval", out.Status)
	return out.IntentID
}

// beginEvents begins to post events with a header line about the transfer of the body.
func beginEvents(t *testing.T, d *dev, header string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(d.HTTP, "http://"))
	require.NoError(t, err)
	require.NoError(t, connection.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(connection, "POST /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s\r\n\r\n", d.Tokens["module"], header)
	require.NoError(t, err)
	return connection
}

// sendSlowly sends the greater part of a body piece by piece, without saying how
// long it is, and sees the answer although the rest has not come: it sends on only
// up to a point between the limit and the end, and waits there.
func sendSlowly(t *testing.T, d *dev) {
	t.Helper()
	const piece, whole = 64 << 10, 8 << 20
	connection := beginEvents(t, d, "Transfer-Encoding: chunked")
	defer func() { _ = connection.Close() }()
	type answered struct {
		response *http.Response
		err      error
	}
	answers := make(chan answered, 1)
	go func() {
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		answers <- answered{response, err}
	}()
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	chunk := fmt.Sprintf("%x\r\n%s\r\n", piece, strings.Repeat(" ", piece))
	for sent := 0; ; {
		select {
		case a := <-answers:
			require.NoError(t, a.err)
			defer func() { _ = a.response.Body.Close() }()
			require.Equal(t, http.StatusRequestEntityTooLarge, a.response.StatusCode)
			require.Greater(t, sent, 4<<20, "not before the limit")
			require.Less(t, sent, whole, "before the end")
			var body bytes.Buffer
			_, err := body.ReadFrom(a.response.Body)
			require.NoError(t, err)
			expectProblem(t, "body_8_mib_while_sending", answer{a.response.StatusCode, a.response.Header, body.Bytes()})
			t.Logf("answered after %d of %d bytes", sent, whole)
			return
		case <-pace.C:
			if sent < whole-piece {
				// The server may close when it has answered; the answer is what counts.
				_, _ = connection.Write([]byte(chunk))
				sent += piece
			}
		}
	}
}
