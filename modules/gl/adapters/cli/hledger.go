package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/money"
)

// WriteHledger writes the journals of a legal entity as an hledger journal, and returns how
// many there are. With functional, postings are in the functional currency, else in their own.
// All of it is as known at one sequence, which the file names. The transactions are collected
// in a temporary file, because the directives before them name the currencies and accounts
// that they use.
func WriteHledger(ctx context.Context, api API, out io.Writer, o Options, functional bool) (journals int, err error) {
	r, err := newReader(ctx, api, o)
	if err != nil {
		return 0, err
	}
	x := &hledger{reader: r, functional: functional, currencies: map[string]bool{}}
	body, err := newSpool()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, body.remove()) }()
	current := "" // sequence of the transaction that is being written
	err = r.readLines(ctx, func(l *line) error {
		if l.Sequence != current {
			current = l.Sequence
			x.writeHead(body, l)
		}
		x.writePosting(body, l)
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err := x.writeDirectives(out); err != nil {
		return 0, err
	}
	return x.journals, body.copyTo(out)
}

// hledger writes one export.
type hledger struct {
	*reader
	functional bool
	journals   int
	currencies map[string]bool
}

// writeHead writes the first lines of a transaction. Write errors surface at the flush.
func (x *hledger) writeHead(out io.Writer, l *line) {
	x.journals++
	fmt.Fprintf(out, "\n%s (%s) %s\n", l.EffectiveDate, plain(l.JournalNumber), cmp.Or(plain(l.Type), "general"))
	fmt.Fprintf(out, "    ; event:%s, intent:%s, correlation:%s, recorded:%s\n", l.EventID, l.IntentID, encode(l.CorrelationID), l.RecordedAt)
}

func (x *hledger) writePosting(out io.Writer, l *line) {
	amount, currency := l.FunctionalAmount, l.FunctionalCurrency
	if !x.functional {
		amount, currency = l.Amount, l.Currency
	}
	if l.Side == "credit" && strings.Trim(amount, "0.") != "" {
		amount = "-" + amount
	}
	x.currencies[currency] = true
	if _, known := x.accounts[l.Account]; !known {
		x.accounts[l.Account] = account{Account: l.Account}
	}
	fmt.Fprintf(out, "    %s  %s %s", l.Account, amount, currency)
	separator := "  ; "
	for _, name := range slices.Sorted(maps.Keys(l.Dimensions)) {
		fmt.Fprintf(out, "%s%s:%s", separator, tagName(name), encode(l.Dimensions[name]))
		separator = ", "
	}
	fmt.Fprintln(out)
}

// writeDirectives declares what the transactions use, which check --strict demands.
func (x *hledger) writeDirectives(out io.Writer) error {
	w := bufio.NewWriter(out)
	basis := "transaction"
	if x.functional {
		basis = "functional"
	}
	fmt.Fprintf(w, "; legal entity %s, %s currency, effective by %s, known at sequence %s\ndecimal-mark .\n\n", plain(x.options.LegalEntity), basis, x.at.AsOf, x.at.Sequence)
	for _, code := range slices.Sorted(maps.Keys(x.currencies)) {
		c, err := money.LookupCurrency(code, time.Time{})
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "commodity 1000.%s %s\n", strings.Repeat("0", int(c.MinorUnit)), code)
	}
	fmt.Fprintln(w)
	letters := map[string]string{"asset": "A", "liability": "L", "equity": "E", "income": "R", "expense": "X"}
	for _, code := range slices.Sorted(maps.Keys(x.accounts)) {
		a := x.accounts[code]
		fmt.Fprintf(w, "account %s", code)
		if letter := letters[a.Type]; letter != "" {
			fmt.Fprintf(w, "  ; type:%s, name:%s", letter, encode(a.Name))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// encode percent-encodes a tag's value, so that it holds no comma, bracket or line break.
func encode(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }

// tagName is the tag of a dimension. hledger gives some names a meaning of its own.
func tagName(dimension string) string {
	switch dimension {
	case "date", "date2", "type", "t", "event", "intent", "correlation", "recorded":
		return "dimension_" + dimension
	default:
		return dimension
	}
}

// plain drops what would end a code or description.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("();|\n\r", r) {
			return '_'
		}
		return r
	}, text)
}
