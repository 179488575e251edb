package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// MatchResult is the outcome of a proposal.
type MatchResult struct {
	Status      string `json:"status"` // matched, refused or failed
	Code        string `json:"code"`
	StatementID string `json:"statement_id"`
	Part        int    `json:"part"`
	LineNumber  int    `json:"line_number"`
	Amount      string `json:"amount"`
	JournalID   string `json:"journal_id"`
	JournalLine int    `json:"journal_line"`
	EventID     string `json:"event_id,omitempty"`
	Detail      string `json:"detail,omitempty"`
}

// MatchReport is the outcome of a run over the proposals of an account.
type MatchReport struct {
	Account   string         `json:"account"`
	Currency  string         `json:"currency"`
	Matches   []MatchResult  `json:"matches"`
	Unmatched int            `json:"unmatched"` // lines without a proposal, of both sides
	Totals    map[string]int `json:"totals"`    // by status
}

type matchFlags struct {
	connection
	json bool
}

func matchCommand() *cobra.Command {
	var f matchFlags
	cmd := &cobra.Command{
		Use:   "match [flags] ACCOUNT",
		Short: "Match bank statement lines with the journals that they name",
		Long: `Match each line of the bank statements of an account that names one journal line alone: the
end-to-end id is the payment that the journal settles, or end-to-end id or reference is
the number of the journal, and both have the same amount. All other lines stay for
people; backbone gl bank-reconciliation lists them.

Exit code: 0 every proposal was matched, 1 something refused, 2 could not run or not finish.`,
		Example:      `  backbone gl match --legal-entity DEMF 1010`,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := f.open()
			if err != nil {
				return err
			}
			ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer release()
			report, err := Match(ctx, api, f.legalEntity, args[0])
			if err != nil {
				return usageError{err}
			}
			write := report.writeTable
			if f.json {
				write = func(w io.Writer) error { return writeJSON(w, report) }
			}
			if err := write(cmd.OutOrStdout()); err != nil {
				return usageError{fmt.Errorf("the report cannot be written: %w", err)}
			}
			return exitOf(report.Totals, "matches")
		},
	}
	f.addFlags(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "write the report as JSON")
	return cmd
}

// item is a row of gl/bank-reconciliation.
type item struct {
	Amount            string `json:"amount"`
	StatementID       string `json:"statement_id"`
	Part              int    `json:"part"`
	LineNumber        int    `json:"line_number"`
	ProposedJournalID string `json:"proposed_journal_id"`
	ProposedLine      int    `json:"proposed_line"`
}

// lastDay is after every day of the books: lines of later days are proposed too.
const lastDay = "9999-12-31"

// Match reads the proposals of an account at one sequence, and matches each. A line that
// another caller has matched in that time is refused.
func Match(ctx context.Context, api BankAPI, legalEntity, account string) (*MatchReport, error) {
	report := &MatchReport{Account: account, Matches: []MatchResult{}, Totals: map[string]int{}}
	query := url.Values{"legal_entity": {legalEntity}, "account": {account}, "as_of": {lastDay}, "limit": {strconv.Itoa(pageLines)}}
	var proposals []item
	for {
		var p struct {
			Header struct {
				Currency string `json:"currency"`
				Sequence string `json:"sequence"`
			} `json:"header"`
			Rows       []item `json:"rows"`
			NextCursor string `json:"next_cursor"`
		}
		if err := api.ReadModel(ctx, "gl/bank-reconciliation", query, &p); err != nil {
			return nil, err
		}
		report.Currency = p.Header.Currency
		for _, r := range p.Rows {
			if r.ProposedJournalID != "" {
				proposals = append(proposals, r)
			} else {
				report.Unmatched++
			}
		}
		query.Set("known_at", "seq:"+p.Header.Sequence)
		if p.NextCursor == "" {
			break
		}
		query.Set("cursor", p.NextCursor)
	}
	for _, r := range proposals {
		m, err := matchOne(ctx, api, legalEntity, account, query.Get("known_at"), r)
		if err != nil {
			return nil, err
		}
		report.Matches, report.Totals[m.Status] = append(report.Matches, m), report.Totals[m.Status]+1
	}
	return report, nil
}

// matchOne submits a match. Its idempotency key has the sequence of the proposal, so that a line
// can be matched again after its match was taken back.
func matchOne(ctx context.Context, api BankAPI, legalEntity, account, knownAt string, r item) (MatchResult, error) {
	m := MatchResult{StatementID: r.StatementID, Part: r.Part, LineNumber: r.LineNumber, Amount: r.Amount, JournalID: r.ProposedJournalID, JournalLine: r.ProposedLine}
	payload, err := json.Marshal(struct {
		domain.BankLineRef
		JournalLines []domain.JournalLineRef `json:"journal_lines"`
	}{
		domain.BankLineRef{StatementRef: domain.StatementRef{Account: account, StatementID: r.StatementID, Part: r.Part}, LineNumber: r.LineNumber},
		[]domain.JournalLineRef{{JournalID: r.ProposedJournalID, LineNumber: r.ProposedLine}},
	})
	if err != nil {
		return m, err
	}
	out, err := api.SubmitIntent(ctx, client.SubmitIntentParams{IdempotencyKey: idempotencyKey("match", legalEntity, knownAt, string(payload))}, client.IntentRequest{
		Type: "gl.match_bank_line", LegalEntity: legalEntity, Payload: payload, Source: client.Source{System: "backbone gl match", Channel: "batch"},
	})
	switch {
	case err != nil:
		m.Status, m.Code, m.Detail = outcomeOf(err)
	case len(out.Events) == 0:
		m.Status, m.Code, m.Detail = StatusFailed, "import.unexpected", unexpectedAnswer
	default:
		m.Status, m.EventID = StatusMatched, out.Events[0].ID
	}
	return m, nil
}

func (r *MatchReport) writeTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STATEMENT\tPART\tLINE\tAMOUNT\tSTATUS\tREASON")
	for i := range r.Matches {
		m := &r.Matches[i]
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t%s\n", m.StatementID, m.Part, m.LineNumber, m.Amount, m.Status, reasonText(m.Code, m.Detail))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d matched in %s, %d lines of both sides have no proposal\n", r.Totals[StatusMatched], cmp.Or(r.Currency, "-"), r.Unmatched)
	return err
}
