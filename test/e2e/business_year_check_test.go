package e2e

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checkPlan says how much of the year is checked: at so many recorded points on so many dates of
// each legal entity, at so many random pairs of both for the control account alone, and so many
// lines that are traced. leastOf are intents that must have been executed.
type checkPlan struct {
	known, dates, control, lines int
	leastOf                      []string
}

// frozenReport is a report as it was answered.
type frozenReport struct {
	path string
	body []byte
}

// balance is what a paper has open by what the clients were told, and whether it was negative at
// some time.
func (p *paper) balance() (open int64, overdrawn bool) {
	all := slices.Clone(p.told)
	slices.SortStableFunc(all, func(a, b told) int { return cmp.Compare(a.sequence, b.sequence) })
	var body int64
	for _, t := range all {
		switch t.what {
		case "body":
			body = t.amount
		case "posted":
			open = body
		case "voided":
			open = 0
		case "settled":
			open -= t.amount
		}
		overdrawn = overdrawn || open < 0
	}
	return open, overdrawn
}

// report asks a report that is caught up, until the server answers.
func (w *worker) report(path string) []byte {
	a, err := w.y.persist(func(d devFile) (answer, error) { return clientOf(d, "auditor").do("GET", path, "") })
	if err == nil && a.status != http.StatusOK {
		err = errors.New(a.String())
	}
	if err != nil {
		w.y.fail(fmt.Errorf("%s: %w", path, err))
	}
	return a.body
}

// freeze keeps reports as they are known now.
func (w *worker) freeze(b *yearBooks, asOf string) {
	head := w.head(b)
	for _, path := range []string{"gl/trial-balance", "gl/subledger-control", "gl/dimension-balances", "ap/open-items", "ap/aging", "ap/tax-summary"} {
		path = fmt.Sprintf("/api/%s?legal_entity=%s&as_of=%s&known_at=seq:%d&min_sequence=%d&limit=1000", path, b.entity, asOf, head, head)
		if strings.Contains(path, "dimension-balances") {
			path += "&dimensions=department"
		}
		f := frozenReport{path, w.report(path)}
		w.y.mutex.Lock()
		w.y.frozen = append(w.y.frozen, f)
		w.y.mutex.Unlock()
	}
}

// nextYear is the trial balance that the next year begins with.
func (w *worker) nextYear(b *yearBooks) []byte {
	var r struct {
		Accounts json.RawMessage `json:"accounts"`
	}
	body := w.report(fmt.Sprintf("/api/gl/trial-balance?legal_entity=%s&as_of=%d-01-01&from=%d-01-01&min_sequence=%d", b.entity, fiscalYear+1, fiscalYear+1, w.head(b)))
	if err := json.Unmarshal(body, &r); err != nil {
		w.y.fail(fmt.Errorf("trial balance %s: %w", body, err))
	}
	return r.Accounts
}

// head is the sequence of the last event of a legal entity.
func (w *worker) head(b *yearBooks) int64 {
	var page struct {
		Events []event `json:"events"`
	}
	body := w.report("/api/events?stream_type=scope&stream_id=" + b.entity + "&direction=backward&limit=1")
	if len(body) == 0 {
		return 0 // the run failed
	}
	if err := json.Unmarshal(body, &page); err != nil || len(page.Events) == 0 {
		w.y.fail(cmp.Or(err, fmt.Errorf("head of %s: %s", b.entity, body)))
		return 0
	}
	n, err := strconv.ParseInt(page.Events[0].Sequence, 10, 64)
	if err != nil {
		w.y.fail(err)
	}
	return n
}

// postedLine is a line of a journal of the log.
type postedLine struct {
	sequence                     int64
	date, account, department    string
	currency, functionalCurrency string
	amount, functional           int64 // debit positive
}

// pairCurrency is a process that posts in both legal entities, and a currency.
type pairCurrency struct{ process, currency string }

// logSum is the books as a plain sum over the log.
type logSum struct {
	events   []event
	lines    []postedLine
	batches  []int64                // last sequences of the batches of intents
	owed     map[pairCurrency]int64 // what is due from and to the other legal entity
	mirrored map[string]bool        // processes of complete pairs
}

// readLog sums up the log of a legal entity.
func (y *businessYear) readLog(b *yearBooks) *logSum {
	y.t.Helper()
	events, err := y.server.Load().as(y.t, "auditor").events(url.Values{"stream_type": {"scope"}, "stream_id": {b.entity}})
	require.NoError(y.t, err)
	sum := &logSum{events: events, owed: map[pairCurrency]int64{}, mirrored: map[string]bool{}}
	for i, e := range events {
		require.Equal(y.t, strconv.Itoa(i+1), e.Sequence, "no gap")
		sequence := int64(i + 1)
		if i+1 == len(events) || events[i+1].IntentID != e.IntentID {
			sum.batches = append(sum.batches, sequence)
		}
		if e.Type == "gl.intercompany.mirrored" {
			sum.mirrored[e.CorrelationID] = true
		}
		if e.Type != "gl.journal.posted" {
			continue
		}
		var j struct {
			FunctionalCurrency string `json:"functional_currency"`
			Lines              []struct {
				Account    string            `json:"account"`
				Side       string            `json:"debit_credit"`
				Amount     json.Number       `json:"amount"`
				Currency   string            `json:"currency"`
				Functional json.Number       `json:"amount_in_reporting_currency"`
				Dimensions map[string]string `json:"dimensions"`
			} `json:"lines"`
		}
		require.NoError(y.t, json.Unmarshal(e.Data, &j))
		balance := map[string]int64{}
		for _, l := range j.Lines {
			p := postedLine{sequence: sequence, date: e.EffectiveDate, account: l.Account, department: l.Dimensions["department"], currency: l.Currency, functionalCurrency: j.FunctionalCurrency}
			p.amount, err = minor(l.Amount.String(), l.Currency)
			require.NoError(y.t, err)
			p.functional, err = minor(l.Functional.String(), j.FunctionalCurrency)
			require.NoError(y.t, err)
			if l.Side == "credit" {
				p.amount, p.functional = -p.amount, -p.functional
			}
			balance[l.Currency] += p.amount
			balance["functional"] += p.functional
			sum.lines = append(sum.lines, p)
			if l.Account == "1900" || l.Account == "2900" {
				sum.owed[pairCurrency{e.CorrelationID, l.Currency}] += p.amount
			}
		}
		for currency, difference := range balance {
			require.Zero(y.t, difference, "journal %s %s", e.ID, currency)
		}
	}
	return sum
}

// balances sums the lines by account, and by account and department, in a currency or, for "", in functional currency.
func (s *logSum) balances(asOf string, known int64, currency string) (byAccount, byDepartment map[string]int64) {
	byAccount, byDepartment = map[string]int64{}, map[string]int64{}
	for i := range s.lines {
		l := &s.lines[i]
		if l.sequence > known {
			break
		}
		if l.date > asOf || currency != "" && l.currency != currency {
			continue
		}
		amount := l.functional
		if currency != "" {
			amount = l.amount
		}
		byAccount[l.account] += amount
		byDepartment[l.account+" "+cmp.Or(l.department, "none")] += amount
	}
	notZero := func(_ string, n int64) bool { return n == 0 }
	maps.DeleteFunc(byAccount, notZero)
	maps.DeleteFunc(byDepartment, notZero)
	return byAccount, byDepartment
}

// check judges the year.
func (y *businessYear) check(plan checkPlan) {
	y.t.Helper()
	y.requireOutcomes(plan)
	w := y.worker("check", 77)
	owed, mirrored := map[pairCurrency]int64{}, map[string]bool{}
	for _, b := range y.books {
		sum := y.readLog(b)
		y.requireToldInLog(b, sum)
		y.requireOpenAsTold(w, b)
		y.requireYearClosed(w, b)
		var gaps struct {
			Rows []struct {
				Series                 string `json:"series"`
				First, Count, Expected int
				Missing, Repeated      []any
			} `json:"rows"`
		}
		require.NoError(y.t, json.Unmarshal(w.report(fmt.Sprintf("/api/gl/number-gaps?legal_entity=%s&min_sequence=%d", b.entity, len(sum.events))), &gaps))
		require.NotEmpty(y.t, gaps.Rows)
		for _, r := range gaps.Rows {
			require.Equal(y.t, []int{1, r.Expected}, []int{r.First, r.Count}, r.Series)
			require.Empty(y.t, append(r.Missing, r.Repeated...), r.Series)
		}
		for range plan.known {
			y.comparePoint(w, b, sum, plan.dates)
		}
		for range plan.control {
			asOf := time.Date(fiscalYear, 1, 1+w.random.IntN(395), 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
			y.requireControl(w, b, fmt.Sprintf("legal_entity=%s&as_of=%s&known_at=seq:%d", b.entity, asOf, 1+w.random.IntN(len(sum.events))))
		}
		maps.Copy(mirrored, sum.mirrored)
		for pair, n := range sum.owed {
			owed[pair] += n
		}
		y.traceLines(w, b, plan.lines)
	}
	for pair, n := range owed {
		if mirrored[pair.process] {
			require.Zero(y.t, n, "what both sides of the pair %v owe each other", pair)
		}
	}
	y.requireFrozen(w)
	d := y.server.Load()
	verdict := command(y.t, nil, "verify", "--dsn", d.DSN)
	require.Zero(y.t, verdict.code, verdict)
	y.requireNoFailures()
}

// requireOutcomes prints how intents ended, and requires that those of the plan were executed.
func (y *businessYear) requireOutcomes(plan checkPlan) {
	y.t.Helper()
	intents := 0
	for _, name := range slices.Sorted(maps.Keys(y.counts)) {
		y.t.Logf("%6d %s", y.counts[name], name)
		intents += y.counts[name]
	}
	y.t.Logf("%d documents, %d intents, %d requests sent again", y.submitted.Load(), intents, y.repeats.Load())
	for _, name := range plan.leastOf {
		require.Positive(y.t, y.counts[name], "%s was never executed", name)
	}
}

// requireToldInLog requires that the log has the events of each acknowledged intent exactly once,
// and no other ones of intents of the year.
func (y *businessYear) requireToldInLog(b *yearBooks, sum *logSum) {
	y.t.Helper()
	seen := map[string]int{}
	for _, e := range sum.events {
		seen[e.ID]++
	}
	for id, e := range y.executed {
		if e.entity != b.entity {
			continue
		}
		for _, eventID := range e.events {
			require.Equal(y.t, 1, seen[eventID], "event %s of intent %s", eventID, id)
		}
	}
	// The set-up of the demonstration came before; refusals and waiting intents are events of their own.
	started := false
	for _, e := range sum.events {
		if _, ours := y.executed[e.IntentID]; ours {
			started = true
		}
		if !started || e.IntentID == "" || strings.HasPrefix(e.Type, "backbone.") {
			continue
		}
		told, known := y.executed[e.IntentID]
		require.True(y.t, known, "no client was told of intent %s, which made %s", e.IntentID, e.Type)
		require.Contains(y.t, told.events, e.ID)
	}
}

// openItem is a row of ap/open-items.
type openItem struct {
	DocumentID     string `json:"document_id"`
	Kind           string `json:"kind"`
	Currency       string `json:"currency"`
	Open           string `json:"open"`
	OpenFunctional string `json:"open_functional"`
}

// reportRows reads all pages of a report.
func reportRows[T any](y *businessYear, w *worker, path string) (rows []T) {
	y.t.Helper()
	for cursor := ""; ; {
		var page struct {
			Rows       []T    `json:"rows"`
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}
		body := w.report(path + "&limit=1000&cursor=" + url.QueryEscape(cursor))
		require.NoError(y.t, json.Unmarshal(body, &page), "%s: %s", path, body)
		rows = append(rows, page.Rows...)
		if cursor = page.NextCursor; !page.HasMore {
			return rows
		}
	}
}

// requireOpenAsTold compares what is open with what the clients were told.
func (y *businessYear) requireOpenAsTold(w *worker, b *yearBooks) {
	y.t.Helper()
	want := map[string]string{}
	for _, p := range b.papers {
		open, overdrawn := p.balance()
		require.False(y.t, overdrawn, "more was settled of %s than it had: %v", p.id, p.told)
		if p.kind == "credit_memo" {
			open = -open
		}
		if open != 0 {
			want[p.id] = decimal(open, p.currency).String()
		}
	}
	got := map[string]string{}
	for _, r := range reportRows[openItem](y, w, fmt.Sprintf("/api/ap/open-items?legal_entity=%s&as_of=%d-12-31&min_sequence=%d", b.entity, fiscalYear+1, w.head(b))) {
		got[r.DocumentID] = r.Open
	}
	require.Equal(y.t, want, got)
}

// requireYearClosed requires that income and expense are 0 in each account and department, and in
// each currency.
func (y *businessYear) requireYearClosed(w *worker, b *yearBooks) {
	y.t.Helper()
	type row struct{ Account, Balance string }
	at := fmt.Sprintf("legal_entity=%s&as_of=%d-12-31", b.entity, fiscalYear)
	rows := reportRows[row](y, w, "/api/gl/dimension-balances?dimensions=department&"+at)
	for _, currency := range businessCurrencies {
		var report struct{ Accounts []row }
		require.NoError(y.t, json.Unmarshal(w.report("/api/gl/trial-balance?currency="+currency+"&"+at), &report))
		rows = append(rows, report.Accounts...)
	}
	for _, r := range rows {
		if r.Account >= "4000" {
			require.Empty(y.t, strings.Trim(r.Balance, "-0."), "account %s has %s", r.Account, r.Balance)
		}
	}
}

// comparePoint compares reports with hledger and with the sum over the log at one recorded point
// on some dates.
func (y *businessYear) comparePoint(w *worker, b *yearBooks, sum *logSum, dates int) {
	y.t.Helper()
	t := y.t
	known := sum.batches[len(sum.batches)-1-w.random.IntN(len(y.executed)/2)]
	if w.chance(50) { // inside a batch, perhaps
		known = max(known-w.random.Int64N(3), 1)
	}
	var referee *hledgerBooks
	if _, err := exec.LookPath("hledger"); err == nil {
		referee = y.exportBooks(b, known)
	} else {
		t.Log("not compared with hledger, which is not installed: apt-get install hledger")
	}
	for range dates {
		asOf := time.Date(fiscalYear, 1, 1+w.random.IntN(395), 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
		at := fmt.Sprintf("legal_entity=%s&as_of=%s&known_at=seq:%d", b.entity, asOf, known)
		for _, currency := range append([]string{""}, businessCurrencies...) {
			path := "/api/gl/trial-balance?" + at
			if currency != "" {
				path += "&currency=" + currency
			}
			var report struct {
				Sequence    string `json:"sequence"`
				Accounts    []struct{ Account, Balance string }
				TotalDebit  string `json:"total_debit"`
				TotalCredit string `json:"total_credit"`
			}
			require.NoError(t, json.Unmarshal(w.report(path), &report))
			require.Equal(t, report.TotalDebit, report.TotalCredit, path)
			resolved, err := strconv.ParseInt(report.Sequence, 10, 64)
			require.NoError(t, err)
			want, departments := sum.balances(asOf, resolved, currency)
			got := map[string]int64{}
			unit := cmp.Or(currency, b.currency)
			for _, r := range report.Accounts {
				if n, err := minor(r.Balance, unit); n != 0 {
					require.NoError(t, err)
					got[r.Account] = n
				}
			}
			require.Equal(t, want, got, path)
			if referee != nil {
				require.Equal(t, referee.balances(t, asOf, currency), got, path)
			}
			if currency != "" {
				continue
			}
			gotDepartments := map[string]int64{}
			for _, r := range reportRows[struct {
				Account, Balance string
				Dimensions       map[string]string
			}](y, w, "/api/gl/dimension-balances?dimensions=department&"+at) {
				if n, err := minor(r.Balance, b.currency); n != 0 {
					require.NoError(t, err)
					gotDepartments[r.Account+" "+r.Dimensions["department"]] = n
				}
			}
			require.Equal(t, departments, gotDepartments, path)
			if referee != nil {
				referee.requireDepartments(t, asOf, gotDepartments)
			}
		}
		y.requireControl(w, b, at)
	}
}

// requireControl requires that the subledger is the control account, that nothing is overdrawn
// and that the open items add up to it.
func (y *businessYear) requireControl(w *worker, b *yearBooks, at string) {
	y.t.Helper()
	var control int64
	for _, byVendor := range []string{"true", "false"} {
		control = 0
		for _, r := range reportRows[struct {
			Currency             string `json:"currency"`
			Difference           string `json:"difference"`
			DifferenceFunctional string `json:"difference_functional"`
			LedgerFunctional     string `json:"ledger_functional"`
		}](y, w, "/api/gl/subledger-control?by_vendor="+byVendor+"&"+at) {
			require.Empty(y.t, strings.Trim(r.Difference+r.DifferenceFunctional, "0."), "%s: %+v", at, r)
			n, err := minor(r.LedgerFunctional, b.currency)
			require.NoError(y.t, err)
			control += n
		}
	}
	var open int64
	for _, r := range reportRows[openItem](y, w, "/api/ap/open-items?"+at) {
		require.Equal(y.t, r.Kind == "credit_memo", strings.HasPrefix(r.Open, "-"), "%s: %+v", at, r)
		n, err := minor(r.OpenFunctional, b.currency)
		require.NoError(y.t, err)
		open += n
	}
	require.Equal(y.t, control, open, "open items and control account, %s", at)
}

// hledgerBooks are balances of each day by another program, of both exports.
type hledgerBooks struct {
	days        map[string]int     // column of a day
	functional  map[string][]int64 // by account
	transaction map[string][]int64 // by account and currency
	departments map[string][]int64 // of account 6000
}

// exportBooks exports both files as known at a sequence, has hledger check them strictly, and reads
// the balances of each day that it adds up.
func (y *businessYear) exportBooks(b *yearBooks, known int64) *hledgerBooks {
	y.t.Helper()
	books := &hledgerBooks{}
	for _, basis := range []string{"functional", "transaction"} {
		file := filepath.Join(y.t.TempDir(), basis+".journal")
		y.server.Load().as(y.t, "auditor").succeed(y.t, "gl", "export", "--format", "hledger", "--basis", basis, "--legal-entity", b.entity,
			"--as-of", fmt.Sprintf("%d-12-31", fiscalYear+1), "--known-at", fmt.Sprintf("seq:%d", known), "-o", file)
		runHledger(y.t, "-f", file, "check")
		runHledger(y.t, "-f", file, "check", "--strict")
		into := &books.transaction
		if basis == "functional" {
			into = &books.functional
			books.departments = books.read(y.t, false, file, "acct:^6000$", "--pivot", "department")
		}
		*into = books.read(y.t, basis == "transaction", file)
		require.NoError(y.t, os.Remove(file))
	}
	return books
}

func runHledger(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "hledger", args...)
	cmd.Env = append(os.Environ(), "LANG=C.UTF-8", "LC_ALL=C.UTF-8")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.NoError(t, err, "hledger %v: %s", args, problems.String())
	return string(out)
}

// read has hledger add up the balances of each day.
func (h *hledgerBooks) read(t *testing.T, byCurrency bool, file string, more ...string) map[string][]int64 {
	t.Helper()
	text := runHledger(t, append([]string{
		"-f", file, "bal", "--historical", "--daily", "-b", fmt.Sprintf("%d-01-01", fiscalYear), "-e", fmt.Sprintf("%d-03-01", fiscalYear+1),
		"--flat", "--no-total", "--layout=bare", "-O", "csv",
	}, more...)...)
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	h.days = map[string]int{}
	for i, day := range rows[0][2:] {
		h.days[day] = i
	}
	out := map[string][]int64{}
	for _, row := range rows[1:] {
		key := row[0]
		if byCurrency {
			key += " " + row[1]
		}
		amounts := make([]int64, len(row)-2)
		for i, text := range row[2:] {
			amounts[i], err = minor(strings.ReplaceAll(text, ",", ""), row[1])
			require.NoError(t, err)
		}
		out[key] = amounts
	}
	return out
}

func (h *hledgerBooks) balances(t *testing.T, asOf, currency string) map[string]int64 {
	t.Helper()
	column, known := h.days[asOf]
	require.True(t, known, asOf)
	out := map[string]int64{}
	for key, amounts := range h.functional {
		if currency == "" && amounts[column] != 0 {
			out[key] = amounts[column]
		}
	}
	for key, amounts := range h.transaction {
		account, of, _ := strings.Cut(key, " ")
		if currency != "" && of == currency && amounts[column] != 0 {
			out[account] = amounts[column]
		}
	}
	return out
}

func (h *hledgerBooks) requireDepartments(t *testing.T, asOf string, want map[string]int64) {
	t.Helper()
	got, expected := map[string]int64{}, map[string]int64{}
	for department, amounts := range h.departments {
		department, err := url.QueryUnescape(department)
		require.NoError(t, err)
		if n := amounts[h.days[asOf]]; n != 0 {
			got["6000 "+cmp.Or(department, "none")] = n
		}
	}
	for key, n := range want {
		if strings.HasPrefix(key, "6000 ") {
			expected[key] = n
		}
	}
	require.Equal(t, expected, got, asOf)
}

// requireFrozen asks the reports that months ended with again, also after the read models were
// computed again from the log, and requires the same bytes.
func (y *businessYear) requireFrozen(w *worker) {
	y.t.Helper()
	require.NotEmpty(y.t, y.frozen)
	again := func() {
		y.t.Helper()
		for _, f := range y.frozen {
			require.Equal(y.t, string(f.body), string(w.report(f.path)), f.path)
		}
	}
	again()
	for _, projection := range []string{"gl.ledger", "ap.open-items", "ap.tax"} {
		y.server.Load().as(y.t, "operator").succeed(y.t, "projections", "rebuild", projection, "--compare", "--switch")
	}
	again()
}

// traceLines follows random figures of the trial balance to lines, journals, events, intents and
// persons, and back.
func (y *businessYear) traceLines(w *worker, b *yearBooks, lines int) {
	y.t.Helper()
	t := y.t
	asOf := fmt.Sprintf("%d-12-31", fiscalYear)
	var report struct {
		Accounts []struct{ Account, Balance string }
	}
	require.NoError(t, json.Unmarshal(w.report(fmt.Sprintf("/api/gl/trial-balance?legal_entity=%s&as_of=%s&include_closing=false", b.entity, asOf)), &report))
	type ledgerLine struct {
		EventID          string `json:"event_id"`
		JournalNumber    string `json:"journal_number"`
		Side             string `json:"side"`
		FunctionalAmount string `json:"functional_amount"`
	}
	var all []ledgerLine
	for _, a := range report.Accounts {
		rows := reportRows[ledgerLine](y, w, fmt.Sprintf("/api/gl/accounts/%s/ledger?legal_entity=%s&as_of=%s", a.Account, b.entity, asOf))
		all = append(all, rows...)
	}
	require.NotEmpty(t, all)
	for range lines {
		l := pick(w, all)
		var chain struct {
			Lineage []event `json:"lineage"`
		}
		require.NoError(t, json.Unmarshal(w.report(fmt.Sprintf("/api/events/%s/lineage", l.EventID)), &chain), l.EventID)
		require.NotEmpty(t, chain.Lineage)
		require.Equal(t, l.EventID, chain.Lineage[len(chain.Lineage)-1].ID)
		root := chain.Lineage[0]
		require.Empty(t, root.CausedBy, "the chain of %s ends at %s", l.JournalNumber, root.Type)
		for _, e := range chain.Lineage {
			require.NotEmpty(t, e.Actor.ID)
			require.NotEmpty(t, e.IntentID, "%s of %s", e.Type, l.JournalNumber)
		}
		var stored struct {
			Status string `json:"status"`
			Actor  struct {
				ID string `json:"id"`
			} `json:"actor"`
		}
		require.NoError(t, json.Unmarshal(w.report(fmt.Sprintf("/api/intents/%s", root.IntentID)), &stored))
		require.Equal(t, "executed", stored.Status)
		require.Equal(t, root.Actor.ID, stored.Actor.ID)
		if len(chain.Lineage) == 1 {
			continue
		}
		// Back from the first cause.
		var effects struct {
			Descendants []struct {
				Event event `json:"event"`
			} `json:"descendants"`
			Truncated bool `json:"truncated"`
		}
		require.NoError(t, json.Unmarshal(w.report(fmt.Sprintf("/api/events/%s/descendants?limit=1000", root.ID)), &effects))
		reached := effects.Truncated
		for _, e := range effects.Descendants {
			reached = reached || e.Event.ID == l.EventID
		}
		require.True(t, reached, "%s is no effect of %s %s", l.JournalNumber, root.Type, root.ID)
	}
}
