package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// businessYearSeed and businessYearDocuments repeat a run, and size it.
	businessYearSeed      = "BACKBONE_DRILL_SEED"
	businessYearDocuments = "BACKBONE_DRILL_DOCUMENTS"

	businessClients = 16
	fiscalYear      = 2010 // the first of the demonstration, so that its periods close in order
)

// TestBusinessMonths is the small TestDrillBusinessYear: three months with business.
func TestBusinessMonths(t *testing.T) {
	t.Parallel()
	y := newBusinessYear(t, businessPlan{months: 3, documents: 60, kills: 1})
	y.run()
	y.check(checkPlan{known: 1, dates: 4, control: 8, lines: 8})
	judge(t, y.server.Load().DSN).requireStoredStates(t)
}

// businessPlan sizes a simulated business year.
type businessPlan struct{ months, documents, kills int }

// businessYear is a fiscal year of two legal entities. Clients act on the same documents at once,
// repeat each intent under its idempotency key until it is answered, and note what they were
// told. The server is killed in between.
type businessYear struct {
	t      *testing.T
	dir    string
	plan   businessPlan
	seed   uint64
	server atomic.Pointer[dev]
	books  []*yearBooks

	submitted atomic.Int64 // documents
	repeats   atomic.Int64 // requests sent again because the answer did not come

	mutex    sync.Mutex
	executed map[string]executedIntent
	counts   map[string]int // by intent type and code, "" for those that were executed
	frozen   []frozenReport
	failures []error
}

// executedIntent is what a client was told of an intent.
type executedIntent struct {
	entity string
	events []string
}

// yearBooks are the books of one legal entity, as its clients know them.
type yearBooks struct {
	entity, currency string
	vendors          []string

	mutex        sync.Mutex
	papers       []*paper
	payments     []*executedPayment
	applications []application
	journals     []string // ids that may be reversed
}

// paper is a document as its clients know it.
type paper struct {
	kind, id, vendor, currency string
	prepayment                 bool
	held                       int // holds that were placed
	state                      string
	posted                     string // day
	told                       []told
}

// told is what the answer to an intent said about a document: it was posted with an amount, voided,
// or an amount was settled (negative: is open again).
type told struct {
	sequence int64
	what     string
	amount   int64
}

// executedPayment is a payment that its client may void.
type executedPayment struct {
	id, day string
	applied []appliedAmount
}

type appliedAmount struct {
	document string
	amount   int64
}

// application is a credit memo or prepayment that was applied to an invoice.
type application struct {
	intent, invoice, source, id, day string
	amount                           int64
}

// minorUnits has the currencies of the business.
var minorUnits = map[string]int{"EUR": 2, "USD": 2, "GBP": 2, "JPY": 0}

var businessCurrencies = []string{"EUR", "USD", "GBP", "JPY"}

// decimal writes an amount of minor units.
func decimal(amount int64, currency string) json.Number {
	digits := minorUnits[currency]
	if digits == 0 {
		return json.Number(strconv.FormatInt(amount, 10))
	}
	sign := ""
	if amount < 0 {
		sign, amount = "-", -amount
	}
	return json.Number(fmt.Sprintf("%s%d.%02d", sign, amount/100, amount%100))
}

// minor reads an amount in minor units. More decimals than the currency has are an error.
func minor(text, currency string) (int64, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	digits := minorUnits[currency]
	for len(fraction) < digits {
		fraction += "0"
	}
	if strings.Trim(fraction[digits:], "0") != "" {
		return 0, fmt.Errorf("amount %s %s", text, currency)
	}
	return strconv.ParseInt(whole+fraction[:digits], 10, 64)
}

func newBusinessYear(t *testing.T, plan businessPlan) *businessYear {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	for name, into := range map[string]func(uint64){
		businessYearSeed:      func(n uint64) { seed = n },
		businessYearDocuments: func(n uint64) { plan.documents = int(n) },
	} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 63)
			require.NoError(t, err, name)
			into(n)
		}
	}
	t.Logf("%d documents; repeat with %s=%d", plan.documents, businessYearSeed, seed)
	y := &businessYear{
		t: t, dir: copyOfBooks(t), plan: plan, seed: seed, executed: map[string]executedIntent{}, counts: map[string]int{},
		books: []*yearBooks{{entity: "USMF", currency: "USD"}, {entity: "DEMF", currency: "EUR"}},
	}
	y.server.Store(startOn(t, y.dir, recoveryStart))
	return y
}

// month is the first and the last day of a month of the year, and its period.
func month(m int) (first, last, period string) {
	start := time.Date(fiscalYear, time.Month(m), 1, 0, 0, 0, 0, time.UTC)
	return start.Format(time.DateOnly), start.AddDate(0, 1, -1).Format(time.DateOnly), start.Format("2006-01")
}

// run lets the year happen.
func (y *businessYear) run() {
	y.t.Helper()
	y.setUp()
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		y.killServers()
	}()
	var ends sync.WaitGroup
	for m := 1; m <= y.plan.months && !y.failed(); m++ {
		var clients sync.WaitGroup
		for n := range businessClients {
			clients.Go(func() { y.worker(fmt.Sprintf("client-%d-%d", m, n), uint64(m*100+n)).work(m) })
		}
		clients.Wait()
		ends.Wait() // months end one after another, while clients work in the next one
		for i, b := range y.books {
			ends.Go(func() { y.worker(fmt.Sprintf("end-%d-%d", m, i), uint64(5000+m*10+i)).endMonth(b, m) })
		}
		if m == y.plan.months {
			ends.Wait()
		}
	}
	<-killed
	y.requireNoFailures()
	for i, b := range y.books {
		ends.Go(func() { y.worker(fmt.Sprintf("year-%d", i), uint64(9000+i)).endYear(b) })
	}
	ends.Wait()
	y.requireNoFailures()
}

func (y *businessYear) requireNoFailures() {
	y.t.Helper()
	y.mutex.Lock()
	defer y.mutex.Unlock()
	require.NoError(y.t, errors.Join(y.failures...))
}

func (y *businessYear) fail(err error) {
	y.mutex.Lock()
	defer y.mutex.Unlock()
	if len(y.failures) < 20 && !errors.Is(err, errRunFailed) {
		y.failures = append(y.failures, err)
	}
}

func (y *businessYear) failed() bool {
	y.mutex.Lock()
	defer y.mutex.Unlock()
	return len(y.failures) > 0
}

// killServers kills backbone, and every other time its PostgreSQL, each time that a share of the
// documents was submitted.
func (y *businessYear) killServers() {
	for k := range y.plan.kills {
		target := int64(y.plan.documents * (k + 1) / (y.plan.kills + 1))
		tick := time.NewTicker(5 * time.Millisecond)
		for y.submitted.Load() < target && !y.failed() {
			<-tick.C
		}
		tick.Stop()
		d := y.server.Load()
		pid, err := postmaster(y.dir)
		if k%2 == 0 || err != nil {
			err = d.signal(syscall.SIGKILL)
		} else {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err == nil {
			_, err = d.wait(endTime)
		}
		if err == nil {
			d, err = startDev(program(y.t), y.dir, recoveryStart)
		}
		if err != nil {
			y.fail(err)
			return
		}
		y.t.Cleanup(func() { require.NoError(y.t, d.end()) })
		y.server.Store(d)
	}
}

// worker is a client, or the person who ends months.
type worker struct {
	y      *businessYear
	name   string
	random *rand.Rand
	sent   int
}

func (y *businessYear) worker(name string, n uint64) *worker {
	return &worker{y: y, name: name, random: rand.New(rand.NewPCG(y.seed, n))}
}

func (w *worker) chance(percent int) bool { return w.random.IntN(100) < percent }

func pick[T any](w *worker, list []T) T { return list[w.random.IntN(len(list))] }

// errRunFailed ends requests after a failure of the run, which is reported itself.
var errRunFailed = errors.New("the run failed")

// persist sends a request until it is answered, also while the server is down.
func (y *businessYear) persist(send func(d devFile) (answer, error)) (answer, error) {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	const attempts = 15_000 // ends hangs only
	for attempt := 0; ; attempt++ {
		a, err := send(y.server.Load().devFile)
		switch {
		case err == nil && a.status < http.StatusInternalServerError && a.code() != "idempotency.in_progress":
			return a, nil
		case y.failed():
			return a, errRunFailed
		case attempt > attempts:
			return a, errors.Join(err, fmt.Errorf("no answer: %s", a))
		}
		y.repeats.Add(1)
		<-pause.C
	}
}

// businessOutcome is the answer to an intent, with the roles that it waits for.
type businessOutcome struct {
	outcome
	Needs []struct {
		Roles []string `json:"roles"`
	} `json:"needs"`
}

// sequence is the place of the last event.
func (o *businessOutcome) sequence() int64 {
	if len(o.Events) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(o.Events[len(o.Events)-1].Sequence, 10, 64)
	return n
}

// has counts the outcome's events of a type.
func (o *businessOutcome) has(eventType string) int {
	n := 0
	for _, e := range o.Events {
		if e.Type == eventType {
			n++
		}
	}
	return n
}

// stream is the id of the stream of the first event.
func (o *businessOutcome) stream() string {
	_, id, _ := strings.Cut(o.Events[0].Stream, "/")
	return id
}

// businessRefusals are codes that clients expect who act at once on the same documents and
// periods, with what they knew before. All other refusals fail the run.
var businessRefusals = []string{
	"ap.invoice.wrong_state", "ap.credit_memo.wrong_state", "ap.invoice.on_hold", "ap.credit_memo.on_hold", "ap.invoice.overapplied", "ap.credit_memo.overapplied",
	"ap.invoice.duplicate", "ap.credit_memo.duplicate", "ap.invoice.already_paid", "ap.credit_memo.already_paid", "ap.invoice.has_payments", "ap.credit_memo.has_payments",
	"ap.hold.already_released", "ap.hold.not_found", "ap.payment_run.empty", "ap.payment_run.changed", "ap.payment_run.wrong_state",
	"payment.already_executed", "payment.wrong_state", "ap.application.posting_date_invalid", "ap.invoice.posting_date_invalid", "ap.credit_memo.posting_date_invalid", "payment.executed_on_invalid", "ap.invoice.prepayment_in_use",
	"gl.period.hard_closed", "gl.journal.already_reversed", "gl.period.pending_intents", "gl.period.reversals_due", "gl.year.already_closed",
	"gl.revaluation.already_run", "append.wrong_expected_version", "gl.intercompany.wrong_state",
}

// do submits an intent, has what waits approved by other persons, and notes the outcome. Of an
// intent that was not executed it returns the code.
func (w *worker) do(persona string, b *yearBooks, intentType string, payload object, more ...string) (o businessOutcome, code string) {
	w.sent++
	key := fmt.Sprintf("%s-%d", w.name, w.sent)
	a, err := w.y.persist(func(d devFile) (answer, error) {
		return clientOf(d, persona).submit(b.entity, intentType, payload, "Idempotency-Key", key)
	})
	used := []string{persona}
	for step := 0; err == nil; step++ {
		if a.code() == "intent.plan_changed" { // of a waiting intent: the approver looks at the new plan
			a, err = w.decide(b, used[len(used)-1], o.IntentID, "approve", fmt.Sprint(key, "-again-", step))
			continue
		}
		if a.status >= http.StatusBadRequest {
			code = a.code()
			if len(used) > 1 { // it waits on, and would keep its month open
				_, err = w.turnDown(b, persona, o.IntentID, key+"-end")
			}
			break
		}
		o = businessOutcome{}
		if err = a.decode(&o); err != nil || o.Status != "pending_approval" {
			break
		}
		if w.chance(4) {
			code = "rejected"
			a, err = w.turnDown(b, persona, o.IntentID, key+"-reject")
			if err == nil && a.status >= http.StatusBadRequest {
				err = fmt.Errorf("rejecting %s: %s", intentType, a)
			}
			break
		}
		approver := ""
		for _, role := range []string{"cfo", "controller", "gl_accountant", "approver", "admin", "second_admin"} {
			for _, need := range o.Needs {
				if approver == "" && slices.Contains(need.Roles, strings.TrimPrefix(role, "second_")) && !slices.Contains(used, role) {
					approver = role
				}
			}
		}
		if approver == "" {
			err = fmt.Errorf("%s of %s waits for no known role: %s", intentType, persona, a)
			break
		}
		used = append(used, approver)
		a, err = w.decide(b, approver, o.IntentID, "approve", fmt.Sprint(key, "-approve-", step))
	}
	if err == nil && code != "" && code != "rejected" && !slices.Contains(businessRefusals, code) && !slices.Contains(more, code) {
		err = fmt.Errorf("answer %s", a)
	}
	if err != nil {
		text, _ := json.Marshal(payload)
		w.y.fail(fmt.Errorf("%s: %s in %s as %s %s: %w", key, intentType, b.entity, persona, text, err))
		return o, "failed"
	}
	w.y.note(b.entity, intentType, code, o)
	return o, code
}

// turnDown ends a waiting intent: the cfo rejects it, or withdraws it as its requester.
func (w *worker) turnDown(b *yearBooks, requester, intentID, key string) (answer, error) {
	decision := "reject"
	if requester == "cfo" {
		decision = "withdraw"
	}
	return w.decide(b, "cfo", intentID, decision, key)
}

// decide approves, rejects or withdraws a waiting intent.
func (w *worker) decide(b *yearBooks, persona, intentID, decision, key string) (answer, error) {
	return w.y.persist(func(d devFile) (answer, error) {
		body := `{"reason":"not now"}`
		if decision == "approve" {
			body = "{}"
		}
		return clientOf(d, persona).do("POST", "/api/intents/"+intentID+"/"+decision+"?legal_entity="+b.entity, body, "Idempotency-Key", key)
	})
}

func (y *businessYear) note(entity, intentType, code string, o businessOutcome) {
	y.mutex.Lock()
	defer y.mutex.Unlock()
	y.counts[strings.TrimSpace(intentType+" "+code)]++
	if code != "" {
		return
	}
	e := executedIntent{entity: entity}
	for _, r := range o.Events {
		e.events = append(e.events, r.ID)
	}
	y.executed[o.IntentID] = e
}

// data reads the data of an event of an outcome.
func (w *worker) data(b *yearBooks, id string, into any) bool {
	a, err := w.y.persist(func(d devFile) (answer, error) {
		return clientOf(d, "auditor").do("GET", "/api/events/"+id+"?legal_entity="+b.entity, "")
	})
	var e struct {
		Event struct {
			Data json.RawMessage `json:"data"`
		} `json:"event"`
	}
	if err == nil && a.status != http.StatusOK {
		err = errors.New(a.String())
	}
	if err == nil {
		err = a.decode(&e)
	}
	if err == nil {
		err = json.Unmarshal(e.Event.Data, into)
	}
	if err != nil {
		w.y.fail(fmt.Errorf("event %s: %w", id, err))
	}
	return err == nil
}

// setUp gives both legal entities rates, bank accounts and vendors with accounts. In DEMF steps
// that ask for it take a second person.
func (y *businessYear) setUp() {
	y.t.Helper()
	w := y.worker("setup", 0)
	for i, b := range y.books {
		var settings object
		d := y.server.Load()
		events, err := d.as(y.t, "auditor").events(map[string][]string{"stream_type": {"type"}, "stream_id": {"gl.ledger.configured"}, "legal_entity": {b.entity}})
		require.NoError(y.t, err)
		require.NoError(y.t, json.Unmarshal(events[0].Data, &settings))
		settings["orderly_close"], settings["second_person"] = true, b.entity == "DEMF"
		w.do("admin", b, "gl.configure_ledger", settings)
		w.do("admin", b, "ap.configure", object{
			"second_person": b.entity == "DEMF", "default_terms": object{"net_days": 30}, "withholding_codes": object{"W10": object{"percent": 10}},
			"bank_accounts": object{
				"MAIN": object{"iban": "NL91ABNA0417164300", "bic": "ABNANL2A", "currency": b.currency},
				"GBP":  object{"iban": "NL91ABNA0417164300", "bic": "ABNANL2A", "currency": "GBP", "account": "1010"},
				"JPY":  object{"iban": "NL91ABNA0417164300", "bic": "ABNANL2A", "currency": "JPY", "account": "1010"},
			},
		})
		w.do("gl_accountant", b, "gl.define_recurring_journal", object{
			"recurring_id": "RENT", "description": "Rent", "schedule": object{"every": "month", "on": "day", "day": 3}, "from": fmt.Sprintf("%d-01-01", fiscalYear),
			"lines": []object{{"account": "6100", "debit_credit": "debit", "amount": 1200}, {"account": "1000", "debit_credit": "credit", "amount": 1200}},
		})
		w.do("gl_accountant", b, "gl.define_recurring_journal", object{
			"recurring_id": "BONUS", "description": "Bonus", "schedule": object{"every": "month", "on": "period_end"}, "from": fmt.Sprintf("%d-01-01", fiscalYear), "reverse": "next_period",
			"lines": []object{{"account": "6500", "debit_credit": "debit", "amount": json.Number("333.33")}, {"account": "2100", "debit_credit": "credit", "amount": json.Number("333.33")}},
		})
		w.do("gl_accountant", b, "gl.define_allocation", object{
			"allocation_id": "rent", "description": "Rent by floor space", "source": object{"account": "6100"},
			"targets": []object{{"dimensions": object{"department": "ENG"}, "percent": json.Number("33.3")}, {"dimensions": object{"department": "FIN"}, "percent": json.Number("66.7")}},
		})
		for n := range 6 {
			id := fmt.Sprintf("V-%d%d", i, n)
			vendor := object{"vendor_id": id, "name": "Vendor " + id, "country": "US", "registration_id": "R" + id}
			if n%2 == 0 {
				vendor["terms"] = object{"net_days": 20, "discount_days": 10, "discount_percent": 2}
			}
			w.do("vendor_admin", b, "ap.register_vendor", vendor)
			for _, currency := range businessCurrencies {
				o, _ := w.do("ap_clerk", b, "ap.request_bank_change", object{
					"vendor_id": id, "currency": currency, "iban": "DE89370400440532013000", "holder": "Vendor " + id, "evidence_ref": "letter", "reason": "first account",
				})
				var requested struct {
					RequestID string `json:"request_id"`
				}
				if len(o.Events) > 0 && w.data(b, o.Events[0].ID, &requested) {
					w.do("vendor_admin", b, "ap.approve_bank_change", object{"request_id": requested.RequestID, "verification": "called back"})
				}
			}
			b.vendors = append(b.vendors, id)
		}
		for m := range y.plan.months {
			w.rates(b, m+1)
		}
	}
	y.requireNoFailures()
}

// ratesOf are units of the book currency for a million units of a currency.
var ratesOf = map[string]map[string]int{"USD": {"EUR": 1_380_000, "GBP": 1_550_000, "JPY": 11_200}, "EUR": {"USD": 725_000, "GBP": 1_120_000, "JPY": 8_100}}

// rates sets spot rates in a month's course and closing rates at its end. JPY, of which the
// demonstration has no rates, gets a spot rate at the month's beginning too.
func (w *worker) rates(b *yearBooks, m int) {
	first, last, _ := month(m)
	set := func(currency, rateType, day string) {
		rate := ratesOf[b.currency][currency]
		rate += rate / 1000 * (w.random.IntN(81) - 40)
		w.do("gl_accountant", b, "gl.set_exchange_rate", object{
			"from": currency, "to": b.currency, "rate_type": rateType, "date": day, "rate": json.Number(fmt.Sprintf("%d.%06d", rate/1_000_000, rate%1_000_000)),
		})
	}
	for _, currency := range businessCurrencies {
		if currency == b.currency {
			continue
		}
		if currency == "JPY" {
			set(currency, "spot", first)
		}
		set(currency, "spot", first[:8]+"15")
		set(currency, "closing", last)
	}
}
