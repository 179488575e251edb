package tamper

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/kmstest"
	"github.com/erpbackbone/backbone/test/moduletest"
	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	tenant  = "acme"
	logName = "tamper.example.org"
)

// object is a JSON object.
type object = map[string]any

// installation is a database with books that have a row in each table that is attacked, and perhaps
// a node.
type installation struct {
	t       *testing.T
	config  configs.Config
	dsn     string // of the superuser
	entity  ports.LegalEntity
	tokens  map[string]string   // by role
	super   *pgx.Conn           // triggers do not fire for it
	keys    *wire.KeyStoreAudit // of a copy
	keyless bool                // it verifies without the public key of the log

	// Of the node.
	server  *wire.Server
	address string

	snapshotID any    // of the client's snapshot
	restored   string // what was restored from the snapshot of a projection
}

func as(t *testing.T, role, dsn string) configs.DSN {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	return configs.DSN(u.String())
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// install takes documents through the books of a node. The node has ended when install returns, and no
// session uses the database, so that it can be copied.
func install(t *testing.T) *installation {
	t.Helper()
	i := &installation{t: t, config: configs.Default(), tokens: map[string]string{}}
	i.config.Archive.Directory = t.TempDir()
	kms := kmstest.Serve(t, nil)
	i.config.KMS.Endpoint, i.config.KMS.CredentialsFile = kms.Endpoint, kms.Credentials
	i.config.Erasure.ExportDirectory, i.config.Mirror.Directory = t.TempDir(), t.TempDir()
	i.config.Query.SnapshotEvery = 10
	i.config.GlobalLog = configs.GlobalLog{CheckpointInterval: time.Second, ExportInterval: time.Second}
	i.config.Webhook.AllowPrivateNetworks = true
	i.use(moduletest.Database(t, modules.BuiltIn()...))
	i.leaveFormerType()
	work, end := i.serve()
	for _, role := range []string{"auditor", "admin", "operator", "compliance", "compliance_approver", "vendor_admin", "module"} {
		caller := ports.Principal{TenantID: tenant, PersonID: "person-" + role, PrincipalID: "person-" + role, ActorType: event.Human, RoleLabel: role, Roles: []string{role}}
		if role == "module" {
			caller.PersonID, caller.PrincipalID, caller.ActorType = "s-module", "s-module", event.System
			caller.Binding = ports.Binding{ResponsiblePerson: "person-admin", Modules: []string{"fleet"}, TrustLevel: ports.TrustChecked}
		}
		var err error
		i.tokens[role], err = i.server.App.Tenancy.Enroll(t.Context(), caller)
		require.NoError(t, err)
	}
	var err error
	i.entity, err = i.server.App.Tenancy.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: tenant, Code: "DEMF", Name: "Demo", TimeZone: "UTC"}, event.Actor{})
	require.NoError(t, err)
	i.setUpBooks()
	vendor := i.registerFirm()
	i.readInClear(vendor)
	work() // binds the read at once
	i.fillBooks(vendor)
	for _, name := range projections {
		require.Equal(t, "0", i.differences(name), name)
	}
	i.awaitProjections()
	end()
	require.NoError(t, i.super.Close(context.Background()))
	return i
}

// use connects the superuser to a database, which a node of the installation will use too.
func (i *installation) use(dsn string) {
	i.t.Helper()
	i.dsn, i.super = dsn, connect(i.t, dsn)
	i.config.Database.DSN, i.config.Database.EraserDSN = as(i.t, "backbone_app", dsn), as(i.t, "backbone_eraser", dsn)
}

// copy is the same installation with another database and without a node. It has all keys, and the
// export folder, of the original one.
func (i *installation) copy(t *testing.T) *installation {
	t.Helper()
	c := *i
	c.t = t
	c.use(testkit.Copy(t, i.dsn))
	var err error
	c.keys, err = wire.OpenKeyStoreAudit(t.Context(), c.config, true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.keys.Close()) })
	return &c
}

// serve starts a node, which answers requests. After work it does its other work too, until end, which is
// called at the end of the test at the latest.
func (i *installation) serve() (work, end func()) {
	i.t.Helper()
	var err error
	i.server, err = wire.NewServer(i.t.Context(), i.config, wire.Options{Modules: modules.BuiltIn(), LogName: logName})
	require.NoError(i.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(i.t, err)
	i.address = "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	served, ran := make(chan error, 1), make(chan struct{})
	t, server := i.t, i.server
	go func() { served <- server.Serve(ctx, listener) }()
	work = sync.OnceFunc(func() {
		go func() {
			defer close(ran)
			server.App.Run(ctx)
		}()
	})
	end = sync.OnceFunc(func() {
		stop()
		require.NoError(t, <-served)
		work() // ends at once
		<-ran
		require.NoError(t, server.Close())
	})
	t.Cleanup(end)
	return work, end
}

// submit submits an intent as a person who holds the role.
func (i *installation) submit(role, intentType string, payload object) (pipeline.Outcome, error) {
	i.t.Helper()
	text, err := json.Marshal(payload)
	require.NoError(i.t, err)
	actor := event.Actor{Type: event.Human, ID: "person-" + role, Name: role}
	return i.server.App.Pipeline.Submit(i.t.Context(), pipeline.Caller{
		Principal: ports.Principal{TenantID: tenant, PersonID: actor.ID, PrincipalID: actor.ID, ActorType: actor.Type, Roles: []string{role}},
		Actor:     actor,
	}, pipeline.Request{
		Type: intentType, LegalEntity: i.entity, Payload: text, IdempotencyKey: fmt.Sprintf("k-%x", sha256.Sum256(text)),
		Source: event.Source{System: "test", Channel: "api", Reference: "paper"},
	})
}

func (i *installation) execute(role, intentType string, payload object) pipeline.Outcome {
	i.t.Helper()
	out, err := i.submit(role, intentType, payload)
	require.NoError(i.t, err, intentType)
	return out
}

// setUpBooks opens the present year of books in EUR.
func (i *installation) setUpBooks() {
	i.t.Helper()
	year := time.Now().UTC().Year()
	i.execute("admin", "gl.configure_ledger", object{
		"functional_currency": "EUR", "default_dimensions": object{"department": "FIN"}, "second_person": false, "orderly_close": false,
		"tax_groups": object{"S/19": object{"rate": 19}},
		"posting_profile": object{
			"ap_control": "2000", "input_tax": "1400", "output_tax": "2200", "rounding": "7900", "prepayment": "1200",
			"opening": "3900", "bank": "1000", "default_expense": "6000", "retained_earnings": "3100",
		},
	})
	for _, a := range []struct{ code, kind, control string }{
		{"1000", "asset", "none"}, {"1200", "asset", "none"}, {"1400", "asset", "none"}, {"2000", "liability", "ap"}, {"2200", "liability", "none"}, {"3100", "equity", "none"},
		{"3900", "equity", "none"}, {"5100", "expense", "none"}, {"6000", "expense", "none"}, {"7900", "expense", "none"},
	} {
		i.execute("gl_accountant", "gl.define_account", object{"code": a.code, "name": "Account " + a.code, "type": a.kind, "control": a.control})
	}
	for _, v := range []string{"PROD", "FIN"} {
		i.execute("gl_accountant", "gl.define_dimension_value", object{"dimension": "department", "value": v, "name": v})
	}
	i.execute("controller", "gl.define_fiscal_year", object{"label": fmt.Sprint(year), "start": fmt.Sprintf("%d-01-01", year), "end": fmt.Sprintf("%d-12-31", year)})
	for month := 1; month <= 12; month++ {
		for _, m := range []string{"gl", "ap"} {
			i.execute("controller", "gl.open_period", object{"module": m, "period": fmt.Sprintf("%d-%02d", year, month)})
		}
	}
	i.execute("admin", "ap.configure", object{"second_person": false, "bank_accounts": object{"MAIN": object{"iban": "NL91ABNA0417164300", "currency": "EUR"}}})
}

// fillBooks makes rows of all kinds: documents that are posted, waiting and refused, sealed
// values, numbers of series, a redaction, and snapshots.
func (i *installation) fillBooks(vendor string) {
	i.t.Helper()
	began := time.Now()
	today := began.UTC().Format(time.DateOnly)
	i.execute("ap_clerk", "ap.register_vendor", object{
		"natural_person": true, "country": "SE", "person": object{"name": "Mira Sandvik", "address": "Birkenweg 9", "vat_id": "SE 123456-7897 01"}, "party_id": "P7",
	})
	invoice := func(number string, amount int) object {
		return object{
			"invoice_number": number, "vendor_id": vendor, "invoice_date": today, "currency": "EUR", "total_amount": amount,
			"lines": []object{{"line_number": 1, "amount": amount, "account": "5100", "dimensions": object{"department": "PROD"}, "description": "work of Mira"}},
		}
	}
	var submitted event.ID
	for n := range 3 {
		posted := i.execute("ap_clerk", "ap.submit_invoice", invoice(fmt.Sprintf("R-%d", n), 10+n)).Events[0]
		submitted = posted.ID
		i.execute("approver", "ap.approve_invoice", object{"invoice_id": posted.Stream.ID})
	}
	taxed := invoice("T-1", 119)
	taxed["tax_amount"], taxed["lines"] = 19, []object{{"line_number": 1, "amount": 100, "account": "5100", "tax_group": "S/19", "dimensions": object{"department": "PROD"}}}
	i.execute("approver", "ap.approve_invoice", object{"invoice_id": i.execute("ap_clerk", "ap.submit_invoice", taxed).Events[0].Stream.ID})
	i.execute("ap_clerk", "ap.record_purchase_order", object{
		"po_reference": "PO-1", "revision": 1, "vendor_id": vendor, "currency": "EUR", "status": "open", "lines": []object{{"po_line_reference": "1", "quantity": 5, "unit_price": 2}},
	})
	i.execute("ap_clerk", "ap.record_goods_receipt", object{"receipt_number": "G-1", "po_reference": "PO-1", "lines": []object{{"po_line_reference": "1", "quantity": 5}}})
	i.execute("gl_accountant", "gl.set_exchange_rate", object{"from": "USD", "to": "EUR", "date": today, "rate": 0.92})
	i.execute("gl_accountant", "gl.block_account", object{"code": "1200", "reason": "replaced"})
	i.execute("ap_clerk", "ap.submit_invoice", invoice("R-9", 10)) // held as a suspected duplicate
	_, err := i.submit("ap_clerk", "ap.submit_invoice", invoice("R-9", 11))
	require.Equal(i.t, "ap.invoice.duplicate", fault.CodeOf(err))
	journal := func(amount int) object {
		return object{"description": "Rent", "posting_date": today, "lines": []object{
			{"account": "6000", "debit_credit": "debit", "amount": amount}, {"account": "2200", "debit_credit": "credit", "amount": amount},
		}}
	}
	posted := i.execute("gl_accountant", "gl.post_journal", journal(100))
	require.Equal(i.t, intent.Executed, posted.Status)
	i.execute("controller", "gl.reverse_journal", object{"journal_id": posted.Events[0].Stream.ID, "reason": "wrong"})
	i.execute("treasurer", "gl.import_bank_statement", object{
		"account": "2200", "statement_id": "S-1", "currency": "EUR", "statement_date": today, "opening_balance": 100, "closing_balance": 0,
		"lines": []object{{"debit_credit": "debit", "amount": 100, "booking_date": today, "value_date": today, "reference": "R-1", "end_to_end_id": "E-1", "text": "rent"}},
	})
	i.execute("treasurer", "gl.match_bank_line", object{
		"account": "2200", "statement_id": "S-1", "line_number": 1, "journal_lines": []object{{"journal_id": posted.Events[0].Stream.ID, "line_number": 2}},
	})
	i.execute("treasurer", "gl.import_bank_statement", object{
		"account": "2200", "statement_id": "S-2", "currency": "EUR", "statement_date": today, "opening_balance": 0, "closing_balance": 0, "lines": []object{},
	})
	i.execute("treasurer", "gl.discard_bank_statement", object{"account": "2200", "statement_id": "S-2", "reason": "of another account"})
	i.payInvoice(today)
	waiting := i.execute("gl_accountant", "gl.post_journal", journal(20_000))
	require.Equal(i.t, intent.PendingApproval, waiting.Status)

	i.redact(submitted, "/data/lines/0/description") // before the tenant's projection, whose snapshot could not be used after it
	i.administer()
	i.call("admin", http.MethodPut, "/api/streams/fleet.truck/T-1/metadata?legal_entity=DEMF", object{"max_count": 1000, "custom": object{"team": "north"}}, nil)
	i.call("auditor", http.MethodGet, "/api/entities/vendor/"+vendor+"?legal_entity=DEMF", nil, nil)
	i.awaitProjections()
	i.allowYoung()
	require.NotZero(i.t, i.archive(began).Payloads)
	i.leaveSnapshots()
	for _, name := range projections {
		i.rebuild(name)
	}
	i.takeSnapshot()
}

// payInvoice pays an invoice of a vendor with an approved account.
func (i *installation) payInvoice(today string) {
	i.t.Helper()
	vendor := i.execute("vendor_admin", "ap.register_vendor", object{"name": "Paid", "country": "NL", "registration_id": "R-17", "natural_person": false}).Events[0].Stream.ID
	i.execute("ap_clerk", "ap.request_bank_change", object{
		"vendor_id": vendor, "currency": "EUR", "iban": "NL02ABNA0123456789", "holder": "Paid", "evidence_ref": "LETTER-2", "reason": "first account",
	})
	i.execute("vendor_admin", "ap.approve_bank_change", object{"request_id": vendor + "-B1", "verification": "called back"})
	invoice := i.execute("ap_clerk", "ap.submit_invoice", object{
		"invoice_number": "PAID-1", "vendor_id": vendor, "invoice_date": today, "due_date": today, "currency": "EUR", "total_amount": 15,
		"lines": []object{{"line_number": 1, "amount": 15, "account": "6000"}},
	}).Events[0].Stream.ID
	i.execute("approver", "ap.approve_invoice", object{"invoice_id": invoice})
	run := i.execute("ap_clerk", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": today, "documents": []object{{"invoice_id": invoice}}}).Events[0].Stream.ID
	i.execute("controller", "ap.approve_payment_run", object{"run_id": run})
	i.execute("treasurer", "ap.execute_payment", object{"payment_id": run + "-P1", "executed_on": today, "bank_reference": "B-1"})
}

// registerFirm registers a vendor that has two contacts, and a bank account that waits.
func (i *installation) registerFirm() (vendor string) {
	i.t.Helper()
	vendor = i.execute("vendor_admin", "ap.register_vendor", object{"name": "Firm", "country": "DE", "vat_id": "DE136695976", "natural_person": false}).Events[0].Stream.ID
	for _, id := range []string{"C-1", "C-2"} {
		i.execute("ap_clerk", "ap.set_vendor_contact", object{"vendor_id": vendor, "contact_id": id, "name": "Olaf Petersen", "email": "olaf@supplier.example", "phone": "+45 70 10 20 30", "function": "bookkeeping"})
	}
	caller, err := client.New(client.Config{Server: i.address, Token: i.tokens["vendor_admin"]})
	require.NoError(i.t, err)
	_, err = caller.KeepPaper(i.t.Context(), client.KeepPaperParams{
		LegalEntity: i.entity.Code, Subject: "vendor:" + vendor, Retention: client.RetentionRegulatory, MediaType: "application/pdf",
	}, []byte("%PDF of the vendor"))
	require.NoError(i.t, err)
	i.execute("ap_clerk", "ap.request_bank_change", object{
		"vendor_id": vendor, "currency": "EUR", "iban": "DE89370400440532013000", "bic": "COBADEFFXXX", "holder": "Firm", "evidence_ref": "LETTER-1", "reason": "first account",
	})
	return vendor
}

// redact lets two persons redact a text of an event.
func (i *installation) redact(e event.ID, pointer string) {
	i.t.Helper()
	var request struct {
		ID      string `json:"id"`
		Preview struct {
			Scope string `json:"scope"`
		} `json:"preview"`
	}
	i.call("compliance", http.MethodPost, "/api/redaction-requests", object{
		"legal_entity": i.entity.Code, "event_id": e.String(), "pointers": []string{pointer}, "reason": "a name in a text",
	}, &request)
	i.call("compliance_approver", http.MethodPost, "/api/redaction-requests/"+request.ID+"/approve", object{"scope": request.Preview.Scope}, nil)
	i.awaitCompletion("/api/redaction-requests/" + request.ID)
}

// projections are those of the built-in modules and the tenant's own.
var projections = []string{
	gl.ProjectionLedger, gl.ProjectionClosing, gl.ProjectionBank, ap.OpenItems, ap.Tax, ap.Vendors, ap.Payments, ap.PurchaseOrders, spend,
}

// rebuild builds a second version of a projection, to which the first one is compared.
func (i *installation) rebuild(name string) {
	i.t.Helper()
	path := "/api/admin/projections/" + name + "/rebuild"
	i.call("operator", http.MethodPost, path, object{"switch": false}, nil)
	testkit.Eventually(i.t, time.Minute, func() bool {
		var status struct {
			Building *struct {
				CaughtUp bool `json:"caught_up"`
			} `json:"building"`
		}
		i.call("operator", http.MethodGet, path, nil, &status)
		return status.Building != nil && status.Building.CaughtUp
	})
}

// call asks the API as a person who holds the role, and decodes what succeeded.
func (i *installation) call(role, method, path string, body, answer any) {
	i.t.Helper()
	status, got := i.ask(role, method, path, body)
	require.Less(i.t, status, 300, "%s %s: %s", method, path, got)
	if answer != nil {
		require.NoError(i.t, json.Unmarshal(got, answer))
	}
}

// ask asks the API as a person who holds the role.
func (i *installation) ask(role, method, path string, body any) (status int, answer []byte) {
	i.t.Helper()
	var text []byte
	if body != nil {
		text = testkit.Must(json.Marshal(body))
	}
	r, err := http.NewRequestWithContext(i.t.Context(), method, i.address+path, strings.NewReader(string(text)))
	require.NoError(i.t, err)
	r.Header.Set("Authorization", "Bearer "+i.tokens[role])
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	require.NoError(i.t, err)
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	require.NoError(i.t, err)
	return response.StatusCode, got
}
