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
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// API is what an export calls of a server; *client.Client implements it.
type API interface {
	ReadModel(ctx context.Context, path string, query url.Values, out any, options ...client.Option) error
}

// Options say what is exported.
type Options struct {
	LegalEntity string
	AsOf        string // ISO date; "" is today
	KnownAt     string // "" is now
	Functional  bool   // postings in functional currency, else in their own
	Progress    func(done, total uint64)
}

// pageLines is how many lines are read at once.
const pageLines = 1000

// account is a row of gl/accounts.
type account struct {
	Account string `json:"account"`
	Name    string `json:"name"`
	Type    string `json:"type"`
}

// line is a row of gl/journal-lines.
type line struct {
	JournalNumber      string            `json:"journal_number"`
	EffectiveDate      string            `json:"effective_date"`
	RecordedAt         string            `json:"recorded_at"`
	Type               string            `json:"type"`
	Account            string            `json:"account"`
	Side               string            `json:"side"`
	Amount             string            `json:"amount"`
	Currency           string            `json:"currency"`
	FunctionalAmount   string            `json:"functional_amount"`
	FunctionalCurrency string            `json:"functional_currency"`
	Dimensions         map[string]string `json:"dimensions"`
	CorrelationID      string            `json:"correlation_id"`
	IntentID           string            `json:"intent_id"`
	EventID            string            `json:"event_id"`
	Sequence           string            `json:"sequence"`
}

type header struct {
	AsOf     string `json:"as_of"`
	Sequence string `json:"sequence"`
}

type page[T any] struct {
	Header     header `json:"header"`
	Rows       []T    `json:"rows"`
	NextCursor string `json:"next_cursor"`
}

// Export writes the journals of a legal entity as an hledger journal, and returns how many
// there are. All of it is as known at one sequence, which the file names. The transactions
// are collected in a temporary file, because the directives before them name the currencies
// and accounts that they use.
func Export(ctx context.Context, api API, out io.Writer, o Options) (journals int, err error) {
	x := &hledger{options: o, api: api, query: url.Values{"legal_entity": {o.LegalEntity}, "limit": {strconv.Itoa(pageLines)}}, currencies: map[string]bool{}, accounts: map[string]account{}}
	if o.AsOf != "" {
		x.query.Set("as_of", o.AsOf)
	}
	if o.KnownAt != "" {
		x.query.Set("known_at", o.KnownAt)
	}
	if err := x.readChart(ctx); err != nil {
		return 0, err
	}
	body, err := os.CreateTemp("", "backbone-export-*")
	if err != nil {
		return 0, fmt.Errorf("temporary file: %w", err)
	}
	defer func() {
		err = errors.Join(err, body.Close(), os.Remove(body.Name()))
	}()
	buffered := bufio.NewWriter(body)
	if err := x.writeTransactions(ctx, buffered); err != nil {
		return 0, err
	}
	if err := buffered.Flush(); err != nil {
		return 0, err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	if err := x.writeDirectives(out); err != nil {
		return 0, err
	}
	_, err = io.Copy(out, body)
	return x.journals, err
}

// hledger writes one export.
type hledger struct {
	options    Options
	api        API
	query      url.Values
	at         header
	journals   int
	accounts   map[string]account // of the chart, and those that lines use without it
	currencies map[string]bool
}

// read reads the pages of a read model.
func read[T any](ctx context.Context, x *hledger, path string, each func(page[T]) error) error {
	query := maps.Clone(x.query)
	for {
		var p page[T]
		if err := x.api.ReadModel(ctx, path, query, &p); err != nil {
			return err
		}
		if err := each(p); err != nil || p.NextCursor == "" {
			return err
		}
		query.Set("cursor", p.NextCursor)
	}
}

// readChart reads the accounts, and pins the sequence at which everything else is read.
func (x *hledger) readChart(ctx context.Context) error {
	err := read(ctx, x, "gl/accounts", func(p page[account]) error {
		x.at = p.Header
		for _, a := range p.Rows {
			x.accounts[a.Account] = a
		}
		return nil
	})
	if err == nil && x.at.Sequence == "" {
		err = fault.New(fault.Internal, "client.answer_unreadable", "the server's answer is not what its API describes; check the server's address and version")
	}
	x.query.Set("as_of", x.at.AsOf)
	x.query.Set("known_at", "seq:"+x.at.Sequence)
	return err
}

func (x *hledger) writeTransactions(ctx context.Context, out *bufio.Writer) error {
	total, err := strconv.ParseUint(x.at.Sequence, 10, 64)
	if err != nil {
		return err
	}
	current := "" // sequence of the transaction that is being written
	err = read(ctx, x, "gl/journal-lines", func(p page[line]) error {
		for i := range p.Rows {
			l := &p.Rows[i]
			if l.Sequence != current {
				current = l.Sequence
				x.writeHead(out, l)
			}
			x.writePosting(out, l)
		}
		if x.options.Progress != nil && p.NextCursor != "" {
			done, _ := strconv.ParseUint(current, 10, 64)
			x.options.Progress(done, total)
		}
		return nil
	})
	if err == nil && x.options.Progress != nil {
		x.options.Progress(total, total)
	}
	return err
}

// writeHead writes the first lines of a transaction. Write errors surface at the flush.
func (x *hledger) writeHead(out *bufio.Writer, l *line) {
	x.journals++
	fmt.Fprintf(out, "\n%s (%s) %s\n", l.EffectiveDate, plain(l.JournalNumber), cmp.Or(plain(l.Type), "general"))
	fmt.Fprintf(out, "    ; event:%s, intent:%s, correlation:%s, recorded:%s\n", l.EventID, l.IntentID, encode(l.CorrelationID), l.RecordedAt)
}

func (x *hledger) writePosting(out *bufio.Writer, l *line) {
	amount, currency := l.FunctionalAmount, l.FunctionalCurrency
	if !x.options.Functional {
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
	if x.options.Functional {
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
