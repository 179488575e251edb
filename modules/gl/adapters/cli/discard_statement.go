package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

type discardFlags struct {
	connection
	statement domain.DiscardedStatement
}

func discardStatementCommand() *cobra.Command {
	var f discardFlags
	cmd := &cobra.Command{
		Use:   "discard-statement [flags] STATEMENT-ID",
		Short: "Take a wrong bank statement out of the reconciliation",
		Long: `Take a bank statement that was imported into the wrong account, or from a wrong file, out of
the reconciliation. Afterwards it can be imported again. It is refused while one of its
lines is matched. Of a statement in parts the last part is discarded first. Where the
ledger takes a second person, the command prints the intent that waits for approval.

Exit code: 0 discarded or waiting for approval, 1 refused, 2 could not run or not finish.`,
		Example:      `  backbone gl discard-statement --legal-entity DEMF --account 1010 --reason "Statement of account 1020" 2026-03-31/42`,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := f.open()
			if err != nil {
				return err
			}
			ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer release()
			f.statement.StatementID = args[0]
			out, err := Discard(ctx, api, f.legalEntity, f.statement)
			if err != nil {
				status, code, detail := outcomeOf(err)
				return &exitError{code: map[string]int{StatusRefused: 1, StatusFailed: 2}[status], text: reasonText(code, detail)}
			}
			if len(out.Events) == 0 {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "waits for approval: backbone intents approve %s\n", out.IntentID)
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "discarded by event %s\n", out.Events[0].ID)
			return err
		},
	}
	f.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.statement.Account, "account", "", "ledger account of the bank account (required)")
	flags.IntVar(&f.statement.Part, "part", 1, "part of a statement that was imported in parts")
	flags.StringVar(&f.statement.Reason, "reason", "", "why the statement is wrong (required)")
	_ = cmd.MarkFlagRequired("account")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

// Discard takes a statement out of the reconciliation. It has no idempotency key: sent twice, the
// second request is refused, since the account has no such statement any more.
func Discard(ctx context.Context, api BankAPI, legalEntity string, s domain.DiscardedStatement) (client.IntentOutcome, error) {
	payload, err := json.Marshal(s)
	if err != nil {
		return client.IntentOutcome{}, err
	}
	return api.SubmitIntent(ctx, client.SubmitIntentParams{}, client.IntentRequest{
		Type: "gl.discard_bank_statement", LegalEntity: legalEntity, Payload: payload, Source: client.Source{System: "backbone gl discard-statement", Channel: "batch"},
	})
}
