package wire

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/erpbackbone/backbone/adapters/httpclient"
)

// ProjectionSettings are the settings that `backbone projections configure` takes.
type ProjectionSettings = httpclient.ProjectionSettings

// DeadLetterFilter says which dead letters `backbone deadletters` lists.
type DeadLetterFilter = httpclient.DeadLetterFilter

// ListProjections prints all projections.
func ListProjections(ctx context.Context, o ClientOptions) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	all, err := client.Projections(ctx)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"projections": all})
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROJECTION\tVERSION\tSTATE\tLAG\tSECONDS\tPROCESSED\tSKIPPED\tFAILED\tSTANDS STILL")
	for _, p := range all {
		state := p.Status
		if !p.Current {
			state += " (" + p.Role
			if p.LegalEntity != "" {
				state += " for " + p.LegalEntity
			}
			state += ")"
		}
		still := "-"
		if p.Faulted > 0 {
			still = fmt.Sprintf("in %d", p.Faulted)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%.0f\t%s\t%s\t%s\t%s\n", p.Name, p.Version, state, p.LagEvents, p.LagSeconds, p.Processed, p.Skipped, p.Failed, still)
	}
	return table.Flush()
}

// ShowProjection prints one projection by legal entity.
func ShowProjection(ctx context.Context, o ClientOptions, name string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	p, err := client.Projection(ctx, name)
	if err != nil {
		return err
	}
	return o.projection(p)
}

// projection prints a projection by legal entity.
func (o ClientOptions) projection(p httpclient.Projection) error {
	if o.JSON {
		return o.json(p)
	}
	fmt.Fprintf(o.Out, "%s, version %d: %s since %s, by %s\n", p.Name, p.Version, p.Status, p.ChangedAt.UTC().Format(minute), p.ChangedBy)
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LEGAL ENTITY\tSTATE\tSEQUENCE\tHEAD\tLAG\tSECONDS\tATTEMPTS\tCODE\tNODE")
	for _, e := range p.LegalEntities {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%.0f\t%d\t%s\t%s\n", e.LegalEntity, e.Status, e.Sequence, e.Head, e.LagEvents, e.LagSeconds,
			e.Attempts, cmp.Or(e.Code, "-"), cmp.Or(e.Node, "-"))
	}
	return table.Flush()
}

// ProjectionChange is what `backbone projections start|pause|...` asks for.
type ProjectionChange struct {
	Name        string
	Action      string
	Version     int // 0: the one that readers are shown
	LegalEntity string
	Reason      string
}

// ChangeProjection does it and prints the projection afterwards.
func ChangeProjection(ctx context.Context, o ClientOptions, c ProjectionChange) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	p, err := client.OperateProjection(ctx, c.Name, c.Action, httpclient.ProjectionCommand{Version: c.Version, LegalEntity: c.LegalEntity, Reason: c.Reason})
	if err != nil {
		return err
	}
	return o.projection(p)
}

// ConfigureProjection replaces the settings and prints them.
func ConfigureProjection(ctx context.Context, o ClientOptions, name string, s ProjectionSettings) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	p, err := client.ConfigureProjection(ctx, name, s)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(p)
	}
	_, err = fmt.Fprintf(o.Out, "%s: %s\n", p.Name, settingsText(p.Settings))
	return err
}

// settingsText says all settings in words.
func settingsText(s ProjectionSettings) string {
	checkpoints := s.Checkpoint.Mode
	if s.Checkpoint.Events > 0 {
		checkpoints = fmt.Sprintf("%s, each %d events or %d ms", s.Checkpoint.Mode, s.Checkpoint.Events, s.Checkpoint.WaitMS)
	}
	batch := "the node's batch size"
	if s.BatchSize > 0 {
		batch = fmt.Sprintf("batches of %d events", s.BatchSize)
	}
	nodes := "shared by all nodes"
	if s.SingleInstance {
		nodes = "on one node at a time"
	}
	return fmt.Sprintf("at most %d attempts, then %s; pauses of %d to %d ms; %s; checkpoints %s; %s",
		s.MaxAttempts, s.OnPoison, s.RetryMS, s.RetryMaxMS, batch, checkpoints, nodes)
}

// ListDeadLetters prints dead letters, at most limit of them.
func ListDeadLetters(ctx context.Context, o ClientOptions, f DeadLetterFilter) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	page, next, err := client.DeadLetters(ctx, f)
	if err != nil {
		return err
	}
	parked, err := subscriptionDeadLetters(ctx, client, f)
	if err != nil {
		return err
	}
	page = append(page, parked...)
	if o.JSON {
		return o.json(map[string]any{"dead_letters": page, "next_cursor": next})
	}
	if len(page) == 0 {
		_, err := fmt.Fprintln(o.Out, "No dead letters.")
		return err
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "READER\tLEGAL ENTITY\tSEQUENCE\tEVENT\tSTATE\tCODE\tWHERE\tATTEMPTS\tLAST FAILED")
	for _, d := range page {
		fmt.Fprintf(table, "%s %s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", d.Kind, d.Name, d.LegalEntity, d.Sequence, d.EventID, d.Status, d.Code,
			cmp.Or(d.Detail, "-"), d.Attempts, d.LastFailedAt.UTC().Format(minute))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintln(o.Out, "There are more; go on with --cursor", next)
	}
	return nil
}
