package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
)

func apCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "ap", Short: "Work with accounts payable"}
	cmd.AddCommand(ImportCommand())
	return cmd
}

// ImportCommand is `ap import`, over the HTTP API.
func ImportCommand() *cobra.Command {
	return cli.ImportCommand(func(server, token string) (cli.API, error) {
		client, err := httpclient.New(httpclient.Config{Server: server, Token: token, Attempts: 1}) // the import tries again by itself
		if err != nil {
			return nil, err
		}
		return importAPI{client}, nil
	})
}

// importAPI lends the HTTP client to the import.
type importAPI struct{ client *httpclient.Client }

// SubmitIntent implements cli.API.
func (a importAPI) SubmitIntent(ctx context.Context, legalEntity string, s cli.Submission) (cli.Outcome, error) {
	answer, err := a.client.SubmitIntent(ctx, httpclient.Intent{
		Type: s.Type, LegalEntity: legalEntity, Payload: s.Payload, EffectiveDate: s.EffectiveDate,
		Source: &httpclient.Source{System: s.Source.System, Channel: s.Source.Channel, Reference: s.Source.Reference},
	}, s.IdempotencyKey)
	if err != nil {
		return cli.Outcome{}, err
	}
	out := cli.Outcome{IntentID: answer.IntentID, Status: answer.Status, CorrelationID: answer.CorrelationID, Replayed: answer.Replayed}
	for _, e := range answer.Events {
		out.Events = append(out.Events, cli.Event{ID: e.ID, Type: e.Type, Sequence: e.Sequence, Stream: e.Stream, StreamVersion: e.StreamVersion})
	}
	for _, r := range answer.Rules {
		out.Rules = append(out.Rules, cli.Rule{ID: r.RuleID, Actions: r.ActionsTaken})
	}
	return out, nil
}
