package ap_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
)

// papers are different papers of one vendor that are equal on kind, currency, total and date.
type papers struct {
	kind, vendor, currency, total, date string
	numbers                             []string // in upper case, without blanks, in NFKC: what makes two numbers the same
}

// payload is one of the papers; form is how its number is written.
func (p *papers) payload(form string) object {
	return documentPayload(p.vendor, form, p.total, object{"currency": p.currency, "invoice_date": p.date})
}

// paperGenerator generates groups of papers and forms of their numbers.
type paperGenerator struct {
	*rand.Rand
	groups int
	taken  map[string]bool // no two groups are equal
}

func (g *paperGenerator) oneOf(from ...string) string { return from[g.IntN(len(from))] }

// group generates 2 to 5 papers. Their numbers differ in zeros, punctuation, a suffix, or wholly.
// Totals and dates are few, so that many groups differ in one of them only.
func (g *paperGenerator) group() papers {
	p := papers{
		kind: g.oneOf("invoice", "invoice", "credit_memo"), vendor: g.oneOf("V1", "V2", "V3"), currency: g.oneOf("EUR", "USD"),
		total: fmt.Sprintf("%d.%02d", 1+g.IntN(20), 10*g.IntN(2)), date: fmt.Sprintf("2025-03-%02d", 1+g.IntN(19)),
	}
	key := fmt.Sprint(p)
	if g.taken[key] {
		return g.group()
	}
	g.taken[key] = true
	g.groups++
	letters := string([]byte{'A' + byte(g.groups/26%26), 'A' + byte(g.groups%26)}) // keep the numbers of two groups apart
	prefix, digits := g.oneOf("INV", "RE", "ÅR"), 1+g.IntN(9999)
	for want := 2 + g.IntN(4); len(p.numbers) < want; {
		separator, written := g.oneOf("-", "/", ".", "_", ""), digits
		if g.IntN(3) == 0 {
			written = 1 + g.IntN(9999)
		}
		number := prefix + separator + letters + separator + g.oneOf("", "0", "00") + fmt.Sprint(written) + g.oneOf("", "", "A", "-1", "/2", "BIS")
		if !slices.Contains(p.numbers, number) {
			p.numbers = append(p.numbers, number)
		}
	}
	return p
}

// form writes a number in another form: small, wide, encircled or decomposed characters, and blanks.
func (g *paperGenerator) form(number string) string {
	var b strings.Builder
	for _, r := range number {
		b.WriteString(g.oneOf("", "", "", "", "", " ", "\u00a0", "\u2009", "\u3000"))
		switch s := string(r); g.IntN(5) {
		case 0:
			b.WriteString(strings.ToLower(s))
		case 1:
			b.WriteString(norm.NFD.String(s))
		case 2:
			if r > ' ' && r <= '~' {
				r += '！' - '!'
			}
			b.WriteRune(r)
		case 3:
			if r >= '1' && r <= '9' {
				r += '①' - '1'
			}
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// submission is one of several at the same time.
type submission struct {
	number, form string
	out          pipeline.Outcome
	err          error
}

func (s *submission) id() string { return s.out.Events[0].Stream.ID }

// submitAtOnce submits papers at the same time, all of them as one clerk.
func (b *books) submitAtOnce(p *papers, all []submission) {
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			all[i].out, all[i].err = b.submit("ap_clerk:petra", "ap.submit_"+p.kind, p.payload(all[i].form))
		})
	}
	wg.Wait()
}

// requireOneEach checks that of each number one submission made a document, and that the refusals of
// the others name it. It returns the documents, in the order of the log.
func (b *books) requireOneEach(p *papers, all []submission) []submission {
	b.tb.Helper()
	holders := map[string]submission{}
	for _, s := range all {
		if s.err == nil {
			require.NotContains(b.tb, holders, s.number, "%q made a second document", s.form)
			holders[s.number] = s
		}
	}
	for _, s := range all {
		holder, ok := holders[s.number]
		require.True(b.tb, ok, "%q: %v", s.form, s.err)
		if s.err != nil {
			require.Equal(b.tb, "ap."+p.kind+".duplicate", fault.CodeOf(s.err), "%q: %v", s.form, s.err)
			f, _ := fault.As(s.err)
			require.Equal(b.tb, []string{holder.id(), holder.out.Events[0].ID.String()}, []string{f.Holder.DocumentID, f.Holder.EventID}, "%q", s.form)
		}
	}
	return slices.SortedFunc(maps.Values(holders), func(a, b submission) int {
		return cmp.Compare(a.out.Events[0].Sequence, b.out.Events[0].Sequence)
	})
}

// TestDuplicates_Groups generates 1,000 groups of papers that are equal on vendor, total and date. The
// papers of a group arrive at the same time, some of them twice in other forms of the number; in some groups an
// earlier paper was rejected or corrected to another total. Of each group the first document is valid and every
// later one is held. A held document is neither approved nor paid until another person than its submitter releases it.
//
// The books are on the memory store, whose appends are decided as those of PostgreSQL under one lock. Ten
// books of 100 groups keep its searches short.
func TestDuplicates_Groups(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			b := newPayingBooks(t)
			b.payee("V2")
			b.payee("V3")
			g := &paperGenerator{Rand: rand.New(rand.NewPCG(seed, 1)), taken: map[string]bool{}}
			var suspects []suspect
			for range 100 {
				suspects = append(suspects, b.submitGroup(g)...)
			}
			require.Greater(t, len(suspects), 150)
			b.requireUnpayable(suspects)
		})
	}
}

// suspect is a document that is held as a possible duplicate.
type suspect struct{ kind, id, hold string }

// submitGroup submits a group of papers and returns the documents that are held.
func (b *books) submitGroup(g *paperGenerator) (held []suspect) {
	b.tb.Helper()
	p := g.group()
	if before := g.IntN(6); before < 2 {
		id := b.execute("ap_clerk:petra", "ap.submit_"+p.kind, p.payload("EARLIER "+p.numbers[0])).Events[0].Stream.ID
		if before == 0 {
			b.execute("approver", "ap.reject_"+p.kind, object{p.kind + "_id": id, "reason": "not ordered"})
		} else {
			other := documentPayload("", "", fmt.Sprint(1000+g.groups), object{"vendor_id": nil, "invoice_number": nil, p.kind + "_id": id, "reason": "mistyped"})
			b.execute("ap_clerk:petra", "ap.correct_"+p.kind, other)
		}
	}
	var all []submission
	for _, number := range p.numbers {
		for range 1 + g.IntN(2) {
			all = append(all, submission{number: number, form: g.form(number)})
		}
	}
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	b.submitAtOnce(&p, all)
	documents := b.requireOneEach(&p, all)
	var earlier []any
	for i, d := range documents {
		events := b.events(d.out)
		earlier = append(earlier, d.id())
		if i == 0 {
			require.Equal(b.tb, []string{"ap." + p.kind + ".submitted", "ap." + p.kind + ".validated"}, types(events), "%q of %+v", d.form, p)
			continue
		}
		require.Equal(b.tb, []string{"ap." + p.kind + ".submitted", "ap." + p.kind + ".held"}, types(events), "%q of %+v", d.form, p)
		hold := events[1].data
		require.Equal(b.tb, []any{"DUPLICATE_SUSPECT", "approval"}, []any{hold["kind"], hold["blocks"]})
		require.Contains(b.tb, earlier[:i], hold["finding"].(object)["document_id"])
		require.Contains(b.tb, hold["finding"].(object)["rules"], "total")
		held = append(held, suspect{p.kind, d.id(), hold["hold_id"].(string)})
	}
	return held
}

// requireUnpayable checks that held documents are neither approved nor paid, nor released by their
// submitter. Those that another person releases are.
func (b *books) requireUnpayable(held []suspect) {
	b.tb.Helper()
	var invoices []object
	var released []string
	for _, s := range held {
		f := b.refuse("ap."+s.kind+".on_hold", "approver", "ap.approve_"+s.kind, object{s.kind + "_id": s.id})
		require.Equal(b.tb, []string{s.hold}, f.Attributes["holds"])
		f = b.refuse("sod.same_person", "approver:petra", "ap.release_hold", object{"hold_id": s.hold, "reason": "my own"})
		require.Equal(b.tb, "S6", f.Attributes["rule"])
		if s.kind == "invoice" {
			invoices = append(invoices, object{"invoice_id": s.id})
		}
	}
	pay := object{"bank_account": "MAIN", "pay_date": "2025-03-20", "documents": invoices}
	b.refuse("ap.payment_run.empty", "treasurer", "ap.propose_payment_run", pay)
	for i, s := range held {
		if i%4 > 0 {
			continue
		}
		b.execute("approver", "ap.release_hold", object{"hold_id": s.hold, "reason": "another delivery"})
		b.execute("approver", "ap.approve_"+s.kind, object{s.kind + "_id": s.id})
		if s.kind == "invoice" {
			released = append(released, s.id)
		}
	}
	var paid []string
	for _, p := range b.propose("MAIN", nil, invoices...).data["payments"].([]any) {
		for _, a := range p.(object)["applications"].([]any) {
			paid = append(paid, a.(object)["invoice_id"].(string))
		}
	}
	require.ElementsMatch(b.tb, released, paid)
}

// TestDuplicates_BehindRejected rejects a document after more corrections than a search of its tags
// returns events, then submits papers with its figures: one after the other, and at once. Each time one is
// valid and the others are held.
func TestDuplicates_BehindRejected(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	g := &paperGenerator{Rand: rand.New(rand.NewPCG(1, 3))}
	for _, total := range []string{"100", "200"} {
		p := papers{kind: "invoice", vendor: "V1", currency: "EUR", total: total, date: "2025-03-15"}
		id := b.invoice(p.payload("REJECTED " + total))
		for range module.TaggedLimit {
			b.execute("ap_clerk", "ap.correct_invoice", body("invoice_id", id, total, "typed wrong", nil))
		}
		b.execute("approver", "ap.reject_invoice", object{"invoice_id": id, "reason": "not ordered"})
		var all []submission
		for _, letter := range "ABCDEFGH" {
			number := string(letter) + total
			all = append(all, submission{number: number, form: g.form(number)})
		}
		if total == "100" {
			for i := range all {
				b.submitAtOnce(&p, all[i:i+1])
			}
		} else {
			b.submitAtOnce(&p, all)
		}
		for i, d := range b.requireOneEach(&p, all) {
			require.Equal(t, i > 0, len(suspects(b.events(d.out))) == 1, "document %d of %s", i, total)
		}
	}
}

// TestDuplicates_Race submits one paper 20 times at once, each time in another form of its number.
func TestDuplicates_Race(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"invoice", "credit_memo"} {
		b := newBooks(t)
		b.vendor("V1", nil)
		g := &paperGenerator{Rand: rand.New(rand.NewPCG(1, 2))}
		p := papers{kind: kind, vendor: "V1", currency: "EUR", total: "100", date: "2025-03-15"}
		for i := range 10 {
			all, number := make([]submission, 20), fmt.Sprintf("ÅR-2025/%d", i)
			p.total = fmt.Sprint(100 + i)
			for i := range all {
				all[i] = submission{number: number, form: g.form(number)}
			}
			b.submitAtOnce(&p, all)
			require.Len(t, b.requireOneEach(&p, all), 1)
		}
	}
}
