package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
)

// work does what a client does in a month, until its share of the year's documents is submitted.
func (w *worker) work(m int) {
	for w.y.submitted.Load() < int64(w.y.plan.documents*m/w.y.plan.months) && !w.y.failed() {
		w.step(pick(w, w.y.books), m)
	}
}

// step is one action. Some are dated in the month before, which is being closed.
func (w *worker) step(b *yearBooks, m int) {
	if m > 1 && w.chance(8) {
		m--
	}
	switch action := w.random.IntN(100); {
	case action < 26:
		w.submitPaper(b, m)
	case action < 52:
		w.approvePaper(b, m)
	case action < 56:
		w.changePaper(b, m)
	case action < 60:
		w.holdPaper(b)
	case action < 66:
		w.releasePaper(b)
	case action < 68:
		w.rejectPaper(b)
	case action < 71:
		w.voidPaper(b, m)
	case action < 74:
		w.reinstatePaper(b, m)
	case action < 80:
		w.applyPaper(b, m)
	case action < 82:
		w.unapplyPaper(b, m)
	case action < 88:
		w.payPapers(b, m)
	case action < 90:
		w.voidPayment(b, m)
	case action < 96:
		w.postJournal(b, m)
	case action < 98:
		w.reverseJournal(b, m)
	default:
		w.intercompany(b, m)
	}
}

// day is a day of a month, not before another one of it.
func (w *worker) day(m int, notBefore string) string {
	_, last, period := month(m)
	day := fmt.Sprintf("%s-%02d", period, 1+w.random.IntN(int(last[8]-'0')*10+int(last[9]-'0')))
	return min(max(day, notBefore), max(last, notBefore))
}

// find returns a random paper that fits, nil if there is none among some.
func (w *worker) find(b *yearBooks, fits func(p *paper) bool) *paper {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if len(b.papers) == 0 {
		return nil
	}
	start := w.random.IntN(len(b.papers))
	if w.chance(60) { // mostly a recent one, which other clients act on too
		start = max(0, len(b.papers)-1-w.random.IntN(60))
	}
	for i := range min(len(b.papers), 400) {
		if p := b.papers[(start+i)%len(b.papers)]; fits(p) {
			return p
		}
	}
	return nil
}

func inState(states ...string) func(p *paper) bool {
	return func(p *paper) bool { return slices.Contains(states, p.state) }
}

// tell notes what an answer said about a paper.
func (b *yearBooks) tell(p *paper, o businessOutcome, state string, all ...told) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if state != "" {
		p.state = state
	}
	p.held += o.has("ap." + p.kind + ".held")
	for _, t := range all {
		t.sequence = o.sequence()
		p.told = append(p.told, t)
	}
}

// body is the content of a paper, and what it posts to the control account.
func (w *worker) body(b *yearBooks, kind, currency string, m int) (body object, payable int64) {
	unit := map[string]int64{"JPY": 100}[currency] // tax of multiples of it is exact
	if unit == 0 {
		unit = 1
	}
	var lines []object
	var net, tax int64
	taxed := w.chance(60)
	for n := range 1 + w.random.IntN(3) {
		amount := unit * (500 + w.random.Int64N(150_000))
		if w.random.IntN(250) == 0 {
			amount *= 200 // takes two approvers
		}
		net += amount
		line := object{
			"line_number": n + 1, "amount": decimal(amount, currency), "account": pick(w, []string{"5000", "5100", "6000", "6200", "6400"}),
			"dimensions": object{"department": pick(w, []string{"ENG", "PROD", "OPS", "FIN"})},
		}
		if taxed {
			line["tax_group"] = "S/19"
		}
		lines = append(lines, line)
	}
	body = object{"invoice_date": w.day(m, ""), "currency": currency, "lines": lines}
	if taxed {
		tax = (net*19 + 50) / 100
		body["tax_amount"] = decimal(tax, currency)
		body["tax_lines"] = []object{{"category": "S", "rate": 19, "taxable_amount": decimal(net, currency), "tax_amount": decimal(tax, currency), "tax_group": "S/19"}}
	}
	body["total_amount"] = decimal(net+tax, currency)
	payable = net + tax
	switch {
	case w.chance(4):
		withheld := (net + 5) / 10
		body["withholding"] = []object{{"code": "W10", "amount": decimal(withheld, currency)}}
		payable -= withheld
	case kind == "invoice" && w.chance(4):
		body["payee_differs"] = true
	case kind == "invoice" && w.chance(8):
		body["discount"] = object{"date": w.day(m, ""), "percent": 3}
	case w.chance(4):
		rounding := unit * w.random.Int64N(5)
		body["rounding_amount"] = decimal(rounding, currency)
		payable += rounding
	}
	return body, payable
}

func (w *worker) submitPaper(b *yearBooks, m int) {
	p := &paper{kind: "invoice", vendor: pick(w, b.vendors), currency: pick(w, businessCurrencies)}
	if w.chance(22) {
		p.kind = "credit_memo"
	}
	body, payable := w.body(b, p.kind, p.currency, m)
	if p.kind == "invoice" && w.chance(12) {
		p.prepayment = true
		body["document_type"] = "prepayment"
	}
	body["vendor_id"], body["invoice_number"] = p.vendor, fmt.Sprintf("%s/%d", w.name, w.sent)
	if w.chance(8) {
		o, code := w.do("ap_clerk", b, "ap.draft_"+p.kind, object{"vendor_id": p.vendor, "currency": p.currency})
		if code != "" {
			return
		}
		if body[p.kind+"_id"] = o.stream(); w.chance(10) {
			w.do("ap_clerk", b, "ap.discard_draft", object{p.kind + "_id": o.stream()})
			return
		}
	}
	o, code := w.do("ap_clerk", b, "ap.submit_"+p.kind, body)
	if code != "" {
		return
	}
	w.y.submitted.Add(1)
	p.id = o.stream()
	b.tell(p, o, stateAfterChecks(p, o), told{what: "body", amount: payable})
	b.mutex.Lock()
	b.papers = append(b.papers, p)
	b.mutex.Unlock()
	if w.chance(3) { // the same paper again, under another key
		delete(body, p.kind+"_id")
		if _, code := w.do("ap_clerk", b, "ap.submit_"+p.kind, body); code != "ap."+p.kind+".duplicate" && code != "failed" && code != "gl.period.hard_closed" {
			w.y.fail(fmt.Errorf("a second submission of %s ended with %q", p.id, code))
		}
	}
}

func stateAfterChecks(p *paper, o businessOutcome) string {
	if o.has("ap."+p.kind+".validated") > 0 {
		return "validated"
	}
	return "submitted"
}

func (w *worker) approvePaper(b *yearBooks, m int) {
	p := w.find(b, inState("validated"))
	if p == nil {
		return
	}
	day := w.day(m, "")
	for _, role := range []string{pick(w, []string{"approver", "approver", "controller"}), "controller", "cfo"} {
		o, code := w.do(role, b, "ap.approve_"+p.kind, object{p.kind + "_id": p.id, "posting_date": day}, "ap.approval.over_limit", "sod.same_person")
		switch {
		case code == "ap.approval.over_limit", code == "sod.same_person":
			continue
		case code != "":
			return
		case o.has("ap."+p.kind+".posted") > 0:
			b.mutex.Lock()
			p.posted = day
			b.mutex.Unlock()
			b.tell(p, o, "posted", told{what: "posted"})
			return
		}
	}
}

func (w *worker) changePaper(b *yearBooks, m int) {
	p := w.find(b, inState("submitted", "validated"))
	if p == nil {
		return
	}
	if w.chance(30) {
		if o, code := w.do("ap_clerk", b, "ap.validate_"+p.kind, object{p.kind + "_id": p.id}); code == "" && len(o.Events) > 0 {
			b.tell(p, o, "")
		}
		return
	}
	w.newBody(b, p, "correct", m)
}

func (w *worker) newBody(b *yearBooks, p *paper, verb string, m int) {
	body, payable := w.body(b, p.kind, p.currency, m)
	body[p.kind+"_id"], body["reason"] = p.id, "typing error"
	if p.prepayment {
		body["document_type"] = "prepayment"
	}
	if o, code := w.do("ap_clerk", b, "ap."+verb+"_"+p.kind, body); code == "" {
		b.tell(p, o, stateAfterChecks(p, o), told{what: "body", amount: payable})
	}
}

func (w *worker) holdPaper(b *yearBooks) {
	if p := w.find(b, inState("validated", "posted")); p != nil {
		o, code := w.do(pick(w, []string{"treasurer", "approver"}), b, "ap.hold_"+p.kind, object{p.kind + "_id": p.id, "kind": pick(w, []string{"MANUAL", "DISPUTE"}), "reason": "short delivery"})
		if code == "" {
			b.tell(p, o, "")
		}
	}
}

func (w *worker) releasePaper(b *yearBooks) {
	p := w.find(b, func(p *paper) bool { return p.held > 0 && p.state != "voided" && p.state != "rejected" })
	if p == nil {
		return
	}
	o, code := w.do("controller", b, "ap.release_hold", object{"hold_id": fmt.Sprintf("%s-H%d", p.id, 1+w.random.IntN(p.held)), "reason": "settled"})
	if code != "" {
		return
	}
	if o.has("ap."+p.kind+".validated") > 0 {
		b.tell(p, o, "validated")
	} else {
		b.mutex.Lock()
		if p.state == "submitted" {
			p.state = "validated" // as far as the client knows; else the approval is refused
		}
		b.mutex.Unlock()
	}
}

func (w *worker) rejectPaper(b *yearBooks) {
	if p := w.find(b, inState("submitted", "validated")); p != nil {
		if o, code := w.do("approver", b, "ap.reject_"+p.kind, object{p.kind + "_id": p.id, "reason": "not ordered"}); code == "" {
			b.tell(p, o, "rejected")
		}
	}
}

func (w *worker) voidPaper(b *yearBooks, m int) {
	if p := w.find(b, inState("validated", "posted")); p != nil {
		o, code := w.do("controller", b, "ap.void_"+p.kind, object{p.kind + "_id": p.id, "reason": "booked in error", "posting_date": w.day(m, p.posted)}, "gl.journal.reversal_date_invalid")
		if code == "" {
			b.tell(p, o, "voided", told{what: "voided"})
		}
	}
}

func (w *worker) reinstatePaper(b *yearBooks, m int) {
	if p := w.find(b, inState("rejected", "voided")); p != nil {
		w.newBody(b, p, "reinstate", m)
	}
}

// open is what a paper has open, as far as the clients know.
func (b *yearBooks) open(p *paper) int64 {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	open, _ := p.balance()
	return max(open, 0)
}

// part is a part of an amount or all of it.
func (w *worker) part(amount int64) int64 {
	if amount > 2 && w.chance(40) {
		return 1 + w.random.Int64N(amount-1)
	}
	return amount
}

func (w *worker) applyPaper(b *yearBooks, m int) {
	prepayment := w.chance(40)
	source := w.find(b, func(p *paper) bool {
		if prepayment {
			return p.prepayment && p.state == "paid"
		}
		return p.kind == "credit_memo" && p.state == "posted"
	})
	if source == nil {
		return
	}
	target := w.find(b, func(p *paper) bool {
		return p.kind == "invoice" && !p.prepayment && p.state == "posted" && p.vendor == source.vendor && p.currency == source.currency
	})
	if target == nil {
		return
	}
	day := w.day(m, max(source.posted, target.posted))
	if prepayment {
		amount := w.part(min(b.open(target), 50_000))
		if amount == 0 {
			return
		}
		w.apply(b, target, source, object{"prepayment_id": source.id}, "ap.apply_prepayment", amount, day)
		return
	}
	amount := w.part(min(b.open(target), b.open(source)))
	if amount == 0 {
		return
	}
	w.apply(b, target, source, object{"credit_memo_id": source.id}, "ap.apply_credit", amount, day)
}

func (w *worker) apply(b *yearBooks, target, source *paper, payload object, intentType string, amount int64, day string) {
	payload["invoice_id"], payload["amount"], payload["posting_date"] = target.id, decimal(amount, target.currency), day
	o, code := w.do("ap_clerk", b, intentType, payload)
	if code != "" {
		return
	}
	a := application{intent: "ap.unapply_credit", invoice: target.id, source: source.id, day: day, amount: amount}
	applied := "ap.invoice.credit_applied"
	if source.kind == "invoice" {
		a.intent, applied = "ap.unapply_prepayment", "ap.invoice.prepayment_applied"
	} else {
		b.tell(source, o, "", told{what: "settled", amount: amount})
	}
	b.tell(target, o, "", told{what: "settled", amount: amount})
	var data struct {
		ApplicationID string `json:"application_id"`
	}
	if w.data(b, o.event(applied), &data) {
		a.id = data.ApplicationID
		b.mutex.Lock()
		b.applications = append(b.applications, a)
		b.mutex.Unlock()
	}
}

func (w *worker) unapplyPaper(b *yearBooks, m int) {
	b.mutex.Lock()
	if len(b.applications) == 0 {
		b.mutex.Unlock()
		return
	}
	n := w.random.IntN(len(b.applications))
	a := b.applications[n]
	b.applications = slices.Delete(b.applications, n, n+1)
	b.mutex.Unlock()
	o, code := w.do("ap_clerk", b, a.intent, object{"invoice_id": a.invoice, "application_id": a.id, "reason": "wrong invoice", "posting_date": w.day(m, a.day)})
	if code != "" {
		return
	}
	b.tell(b.paper(a.invoice), o, "", told{what: "settled", amount: -a.amount})
	if a.intent == "ap.unapply_credit" {
		b.tell(b.paper(a.source), o, "", told{what: "settled", amount: -a.amount})
	}
}

func (b *yearBooks) paper(id string) *paper {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, p := range b.papers {
		if p.id == id {
			return p
		}
	}
	return nil
}

// proposedRun is the data of ap.payment_run.proposed.
type proposedRun struct {
	Payments []struct {
		PaymentID    string      `json:"payment_id"`
		Currency     string      `json:"currency"`
		Amount       json.Number `json:"amount"`
		Applications []struct {
			InvoiceID    string      `json:"invoice_id"`
			CreditMemoID string      `json:"credit_memo_id"`
			Amount       json.Number `json:"amount"`
		} `json:"applications"`
	} `json:"payments"`
}

// payPapers takes a payment run from its proposal to its payments.
func (w *worker) payPapers(b *yearBooks, m int) {
	_, last, _ := month(m)
	account := "MAIN"
	if w.chance(30) {
		account = pick(w, []string{"GBP", "JPY"})
	}
	request := object{"bank_account": account, "pay_date": w.day(m, ""), "take_discount": w.chance(50)}
	if w.chance(25) {
		request["selection"] = object{"due_by": last, "vendors": []string{pick(w, b.vendors)}}
	} else {
		var documents []object
		seen := map[string]bool{}
		for range 2 + w.random.IntN(12) {
			p := w.find(b, inState("posted"))
			if p == nil || seen[p.id] {
				continue
			}
			seen[p.id] = true
			d := object{p.kind + "_id": p.id}
			if open := b.open(p); open > 0 && w.chance(30) {
				d["amount"] = decimal(w.part(open), p.currency)
			}
			documents = append(documents, d)
		}
		if len(documents) == 0 {
			return
		}
		request["documents"] = documents
	}
	o, code := w.do("ap_clerk", b, "ap.propose_payment_run", request)
	if code != "" {
		return
	}
	runID := o.stream()
	var run proposedRun
	for _, e := range o.Events {
		var part proposedRun
		if e.Type != "ap.payment_run.proposed" {
			continue
		}
		if !w.data(b, e.ID, &part) {
			return
		}
		run.Payments = append(run.Payments, part.Payments...)
	}
	if len(run.Payments) > 1 && w.chance(15) {
		if _, code := w.do("treasurer", b, "ap.exclude_payment", object{"payment_id": run.Payments[0].PaymentID, "reason": "vendor asked to wait"}); code == "" {
			run.Payments = run.Payments[1:]
		}
	}
	if w.chance(6) {
		w.do("controller", b, "ap.reject_payment_run", object{"run_id": runID, "reason": "wait"})
		return
	}
	_, code = w.do("controller", b, "ap.approve_payment_run", object{"run_id": runID}, "ap.approval.over_limit")
	if code == "ap.approval.over_limit" {
		_, code = w.do("cfo", b, "ap.approve_payment_run", object{"run_id": runID})
	}
	if code != "" {
		w.do("controller", b, "ap.reject_payment_run", object{"run_id": runID, "reason": "changed"})
		return
	}
	if w.chance(40) {
		w.do("treasurer", b, "ap.export_payment_run", object{"run_id": runID})
	}
	for i := range run.Payments {
		w.pay(b, &run, i, account, last)
	}
}

// bookUnits are units of EUR for a thousand of a currency, for what a bank takes.
var bookUnits = map[string]int64{"EUR": 1000, "USD": 725, "GBP": 1120, "JPY": 8}

func (w *worker) pay(b *yearBooks, run *proposedRun, i int, account, last string) {
	p := &run.Payments[i]
	if w.chance(7) {
		w.do("treasurer", b, "ap.fail_payment", object{"payment_id": p.PaymentID, "reason_code": "AC04"})
		return
	}
	if w.chance(3) { // stays in transit
		return
	}
	payload := object{"payment_id": p.PaymentID, "executed_on": last, "bank_reference": "B-" + p.PaymentID}
	bank := account
	if account == "MAIN" {
		bank = b.currency
	}
	if bank != p.Currency {
		amount, err := minor(p.Amount.String(), p.Currency)
		if err != nil {
			w.y.fail(err)
			return
		}
		for range 2 - minorUnits[p.Currency] {
			amount *= 10
		}
		taken := amount * bookUnits[p.Currency] / bookUnits[bank]
		for range 2 - minorUnits[bank] {
			taken /= 10
		}
		payload["bank_amount"] = decimal(max(taken+taken*w.random.Int64N(20)/1000, 1), bank)
	}
	// A client that lost the answer asks again; another one must not pay twice.
	o, code := w.do("treasurer", b, "ap.execute_payment", payload)
	if code != "" {
		w.do("treasurer", b, "ap.fail_payment", object{"payment_id": p.PaymentID, "reason_code": "MS03", "text": code})
		return
	}
	if w.chance(10) {
		if _, code := w.do("treasurer", b, "ap.execute_payment", payload); code != "payment.already_executed" && code != "payment.wrong_state" && code != "failed" {
			w.y.fail(fmt.Errorf("payment %s was executed twice: %q", p.PaymentID, code))
		}
	}
	executed := &executedPayment{id: p.PaymentID, day: last}
	for _, a := range p.Applications {
		amount, err := minor(a.Amount.String(), p.Currency)
		if err != nil {
			w.y.fail(err)
		}
		id, kind := a.InvoiceID, "invoice"
		if a.CreditMemoID != "" {
			id, kind = a.CreditMemoID, "credit_memo"
		}
		state := ""
		if o.has("ap."+kind+".partially_paid") == 0 {
			state = "paid"
		}
		b.tell(b.paper(id), o, state, told{what: "settled", amount: amount})
		executed.applied = append(executed.applied, appliedAmount{id, amount})
	}
	b.mutex.Lock()
	b.payments = append(b.payments, executed)
	b.mutex.Unlock()
}

func (w *worker) voidPayment(b *yearBooks, m int) {
	b.mutex.Lock()
	if len(b.payments) == 0 {
		b.mutex.Unlock()
		return
	}
	n := w.random.IntN(len(b.payments))
	p := b.payments[n]
	b.payments = slices.Delete(b.payments, n, n+1)
	b.mutex.Unlock()
	o, code := w.do("treasurer", b, "ap.void_payment", object{"payment_id": p.id, "reason": "returned by the bank", "posting_date": w.day(m, p.day)})
	if code != "" {
		return
	}
	for _, a := range p.applied {
		b.tell(b.paper(a.document), o, "posted", told{what: "settled", amount: -a.amount})
	}
}

func (w *worker) postJournal(b *yearBooks, m int) {
	currency := pick(w, businessCurrencies)
	amount := decimal(100+w.random.Int64N(400_000), currency)
	debit, credit := pick(w, []string{"6300", "6500", "1500", "1000"}), pick(w, []string{"4000", "2100", "1010"})
	payload := object{
		"description": "Manual journal", "posting_date": w.day(m, ""), "currency": currency,
		"lines": []object{
			{"account": debit, "debit_credit": "debit", "amount": amount, "dimensions": object{"department": pick(w, []string{"ENG", "FIN"})}},
			{"account": credit, "debit_credit": "credit", "amount": amount},
		},
	}
	if w.chance(25) && m < 12 {
		first, _, _ := month(m + 1)
		payload["reversal_date"] = first
	}
	o, code := w.do("gl_accountant", b, "gl.post_journal", payload)
	if code == "" && payload["reversal_date"] == nil {
		b.mutex.Lock()
		b.journals = append(b.journals, o.stream())
		b.mutex.Unlock()
	}
}

func (w *worker) reverseJournal(b *yearBooks, m int) {
	b.mutex.Lock()
	id := ""
	if n := len(b.journals); n > 0 {
		id = b.journals[w.random.IntN(n)]
	}
	b.mutex.Unlock()
	if id != "" {
		_, last, _ := month(m)
		w.do("gl_accountant", b, "gl.reverse_journal", object{"journal_id": id, "posting_date": last, "reason": "typing error"}, "gl.journal.reversal_date_invalid")
	}
}

// intercompany posts both sides of a pair, or has the second refused and the first reversed.
func (w *worker) intercompany(b *yearBooks, m int) {
	other := w.y.books[0]
	if other == b {
		other = w.y.books[1]
	}
	currency := pick(w, businessCurrencies)
	amount := decimal(100+w.random.Int64N(90_000), currency)
	day := w.day(m, "")
	o, code := w.do("gl_accountant", b, "gl.post_intercompany", object{
		"counterparty": other.entity, "description": "Insurance", "posting_date": day, "currency": currency, "amount": amount,
		"lines":              []object{{"account": "1000", "debit_credit": "credit", "amount": amount}},
		"counterparty_lines": []object{{"account": "6900", "debit_credit": "debit", "amount": amount, "dimensions": object{"department": "FIN"}}},
	})
	if code != "" {
		return
	}
	var initiated struct {
		PairID string `json:"pair_id"`
	}
	if !w.data(b, o.event("gl.intercompany.initiated"), &initiated) {
		return
	}
	pair := object{"pair_id": initiated.PairID, "initiator": b.entity}
	if w.chance(85) {
		if _, code := w.do("gl_accountant", other, "gl.mirror_intercompany", pair); code == "" {
			return
		}
	}
	refused := object{"pair_id": initiated.PairID, "initiator": b.entity, "reason": "not ours"}
	if _, code := w.do("gl_accountant", other, "gl.refuse_intercompany", refused); code != "" {
		return
	}
	delete(refused, "initiator")
	if _, code := w.do("gl_accountant", b, "gl.refuse_intercompany", refused); code == "" {
		w.do("gl_accountant", b, "gl.reverse_journal", object{"journal_id": o.stream(), "posting_date": day, "reason": "refused"})
	}
}

// endMonth posts what is due at a month's end, revalues and closes the month softly, and the month
// before for good, while clients work in the next one.
func (w *worker) endMonth(b *yearBooks, m int) {
	_, last, period := month(m)
	w.freeze(b, last)
	w.do("gl_accountant", b, "gl.run_recurring", object{"through": last})
	w.reverseDue(b, last)
	w.onBalances(b, "gl.run_allocation", object{"allocation_id": "rent", "period": period})
	w.onBalances(b, "gl.revalue", object{"period": period})
	soft := object{"module": "gl", "period": period, "level": "soft"}
	w.do("controller", b, "gl.close_period", soft)
	w.freeze(b, last)
	if m%3 == 1 {
		if _, code := w.do("controller", b, "gl.reopen_period", object{"module": "gl", "period": period, "reason": "a late bill"}); code == "" {
			w.postJournal(b, m)
			w.do("controller", b, "gl.close_period", soft)
		}
	}
	if m > 1 {
		w.closeForGood(b, m-1)
	}
}

// until repeats a step that others may be in the way of.
func (w *worker) until(b *yearBooks, what string, step func() (done bool, code string)) {
	codes := map[string]int{}
	for range 2000 { // ends hangs only
		done, code := step()
		if done || w.y.failed() {
			return
		}
		codes[code]++
	}
	w.y.fail(fmt.Errorf("%s in %s never succeeded: %v", what, b.entity, codes))
}

// onBalances repeats an intent that is planned on balances until no journal is posted to them beside it.
func (w *worker) onBalances(b *yearBooks, intentType string, payload object) {
	w.until(b, intentType, func() (bool, string) {
		_, code := w.do("gl_accountant", b, intentType, payload, "append.condition_failed")
		return code != "append.condition_failed", code
	})
}

// reverseDue reverses all journals that are due.
func (w *worker) reverseDue(b *yearBooks, through string) {
	w.until(b, "reversing what is due on "+through, func() (bool, string) {
		o, code := w.do("gl_accountant", b, "gl.run_due_reversals", object{"through": through})
		return code == "" && len(o.Events) == 0, code
	})
}

// closeForGood repeats a hard close until no client's intent waits in the month, none begins to
// wait beside the close, and nothing is due in it.
func (w *worker) closeForGood(b *yearBooks, m int) {
	_, last, period := month(m)
	w.until(b, "the hard close of "+period, func() (bool, string) {
		w.reverseDue(b, last)
		_, code := w.do("controller", b, "gl.close_period", object{"module": "gl", "period": period, "level": "hard"}, "append.condition_failed")
		return code == "", code
	})
}

// endYear closes the year, again after a late posting, reopens it and closes it again.
func (w *worker) endYear(b *yearBooks) {
	for m := w.y.plan.months + 1; m <= 12 && !w.y.failed(); m++ { // without business
		_, last, period := month(m)
		w.do("gl_accountant", b, "gl.run_recurring", object{"through": last})
		w.reverseDue(b, last)
		w.do("controller", b, "gl.close_period", object{"module": "gl", "period": period, "level": "soft"})
		w.closeForGood(b, m-1)
	}
	_, _, december := month(12)
	closing := object{"fiscal_year": fmt.Sprint(fiscalYear)}
	must := func(persona, intentType string, payload object) {
		for code := "rejected"; code == "rejected" && !w.y.failed(); {
			if _, code = w.do(persona, b, intentType, payload); code != "" && code != "rejected" {
				w.y.fail(fmt.Errorf("%s in %s: %s", intentType, b.entity, code))
			}
		}
	}
	must("controller", "gl.close_year", closing)
	must("gl_accountant", "gl.post_journal", object{
		"description": "A late bill", "posting_date": december + "-30",
		"lines": []object{{"account": "6300", "debit_credit": "debit", "amount": json.Number("77.77"), "dimensions": object{"department": "ENG"}}, {"account": "2100", "debit_credit": "credit", "amount": json.Number("77.77")}},
	})
	must("controller", "gl.close_year", closing)
	before := w.nextYear(b)
	if _, code := w.do("controller", b, "gl.close_year", closing); code != "gl.year.already_closed" {
		w.y.fail(fmt.Errorf("closing %s again ended with %q", b.entity, code))
	}
	must("controller", "gl.reopen_year", closing)
	must("controller", "gl.close_year", closing)
	if after := w.nextYear(b); string(after) != string(before) {
		w.y.fail(fmt.Errorf("reopening and closing the year changed the balances of the next one in %s:\n%s\n%s", b.entity, before, after))
	}
	w.closeForGood(b, 12)
}
