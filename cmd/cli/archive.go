package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/application/archive"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

func archiveCommand(modules []plugin.Module) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Move payloads of closed years out of the database, and back",
		Long: "The archive keeps payloads of events in compressed files, in a folder or a bucket (archive in the\n" +
			"configuration). All else about an event stays in the database, and readers find archived payloads\n" +
			"by themselves: only reading them takes longer.",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(archivePlanCommand(modules), archiveRunCommand(modules), archiveStatusCommand(modules), archiveRestoreCommand(modules))
	return cmd
}

// archiveOptions are the flags of the commands of the archive.
type archiveOptions struct {
	databaseOptions
	Modules       []plugin.Module
	Tenant        string
	LegalEntities []string
	Before        string // a day; "": the default
	From, To      uint64 // sequences
	Reason        string
}

func (o *archiveOptions) selectionFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Tenant, "tenant", "", "only this tenant")
	f.StringSliceVar(&o.LegalEntities, "legal-entity", nil, "only these legal entities")
	f.StringVar(&o.Before, "before", "", "only what was recorded before this day, such as 2023-01-01 (default: the beginning of the year before last)")
}

func archivePlanCommand(modules []plugin.Module) *cobra.Command {
	o := archiveOptions{Modules: modules}
	cmd := databaseCommand(&cobra.Command{
		Use:   "plan",
		Short: "Show what a run would move, and what keeps it from doing so",
		Long: "plan counts the events that a run would archive. It changes nothing.\n\n" +
			"Payloads stay in the database that are younger than two years, of a person under a legal hold, of\n" +
			"a redaction in progress, of the backbone's own events, and of states that no snapshot can hold.",
		Example: "  backbone archive plan --config /etc/backbone.yaml\n" +
			"  backbone archive plan --legal-entity DEMF --before 2022-01-01",
	}, &o.databaseOptions, func(ctx context.Context) error { return o.run(ctx, planArchive) })
	o.selectionFlags(cmd)
	return cmd
}

func archiveRunCommand(modules []plugin.Module) *cobra.Command {
	o := archiveOptions{Modules: modules}
	cmd := databaseCommand(&cobra.Command{
		Use:   "run",
		Short: "Move payloads into the archive",
		Long: "run folds the states that replace the payloads, writes files, reads them back, records each in the\n" +
			"log, and lets the database remove its payloads, which refuses unless they are those of the file.\n" +
			"It may be interrupted at any time; run it again to go on.",
		Example: "  backbone archive run --config /etc/backbone.yaml\n" +
			"  backbone archive run --legal-entity DEMF --before 2022-01-01",
	}, &o.databaseOptions, func(ctx context.Context) error { return o.run(ctx, runArchive) })
	o.selectionFlags(cmd)
	return cmd
}

func archiveStatusCommand(modules []plugin.Module) *cobra.Command {
	o := archiveOptions{Modules: modules}
	return databaseCommand(&cobra.Command{
		Use:   "status",
		Short: "Show what is in the archive",
		Long: "status lists what each legal entity has in the archive. \"backbone verify\" compares every file with\n" +
			"the log.",
		Example: "  backbone archive status --config /etc/backbone.yaml --json",
	}, &o.databaseOptions, func(ctx context.Context) error { return o.run(ctx, showArchive) })
}

func archiveRestoreCommand(modules []plugin.Module) *cobra.Command {
	o := archiveOptions{Modules: modules}
	cmd := databaseCommand(&cobra.Command{
		Use:   "restore",
		Short: "Bring payloads back into the database",
		Long: "restore brings the payloads of the files that have events of a range back into the database, for\n" +
			"an audit that reads them often. The files stay in the archive. A later run archives them again.",
		Example: "  backbone archive restore --legal-entity DEMF --reason \"Audit of 2021\"\n" +
			"  backbone archive restore --legal-entity DEMF --from 1 --to 9120 --reason \"Audit of 2021\"",
	}, &o.databaseOptions, func(ctx context.Context) error { return o.run(ctx, restoreArchive) })
	f := cmd.Flags()
	f.StringVar(&o.Tenant, "tenant", "", "id of the tenant, where several have the legal entity")
	f.StringSliceVar(&o.LegalEntities, "legal-entity", nil, "code of the legal entity (required)")
	f.Uint64Var(&o.From, "from", 1, "sequence of the first event")
	f.Uint64Var(&o.To, "to", math.MaxInt64, "sequence of the last event (default: the last)")
	f.Lookup("to").DefValue = ""
	f.StringVar(&o.Reason, "reason", "", "why, for auditors; no personal data (required)")
	required(cmd, "legal-entity", "reason")
	return cmd
}

// run opens the archive for a command.
func (o *archiveOptions) run(ctx context.Context, do func(context.Context, *archive.Archiver, archive.Selection, *archiveOptions) error) error {
	app, err := wire.OpenWithKeys(ctx, o.Config, wire.Options{Modules: o.Modules, Audit: o.err})
	if err != nil {
		return err
	}
	defer app.Close()
	archiver, err := app.Archiver(ctx)
	if err != nil {
		return err
	}
	selection, err := o.selection(ctx, app.Store.Directory)
	if err != nil {
		return err
	}
	return do(ctx, archiver, selection, o)
}

// selection finds the legal entities that the flags name.
func (o *archiveOptions) selection(ctx context.Context, directory ports.LegalEntities) (s archive.Selection, err error) {
	if o.Before != "" {
		if s.Before, err = time.Parse(time.DateOnly, o.Before); err != nil {
			return s, fault.New(fault.Invalid, "archive.day_invalid", "%q is no day; give --before as 2022-01-01", o.Before)
		}
	}
	all, err := directory.LegalEntities(ctx, o.Tenant)
	if err != nil {
		return s, err
	}
	for _, le := range all {
		if len(o.LegalEntities) == 0 && o.Tenant != "" || slices.Contains(o.LegalEntities, le.Code) {
			s.LegalEntities = append(s.LegalEntities, le)
		}
	}
	if len(s.LegalEntities) == 0 && (o.Tenant != "" || len(o.LegalEntities) > 0) {
		return s, fault.New(fault.NotFound, "legal_entity.not_found", "there is no such legal entity; check --legal-entity and --tenant")
	}
	return s, nil
}

func planArchive(ctx context.Context, a *archive.Archiver, s archive.Selection, o *archiveOptions) error {
	plan, err := a.Plan(ctx, s)
	if err != nil {
		return err
	}
	return o.show(plan, func(p *page) {
		p.line("Recorded before %s:", plan.Before.Format(time.DateOnly))
		p.row("TENANT", "LEGAL ENTITY", "EVENTS", "ARCHIVED", "TO ARCHIVE", "HELD", "REDACTING", "PROJECTIONS BEHIND")
		for _, e := range plan.Entities {
			p.row(e.TenantID, e.LegalEntity, e.Events, e.InSegments, e.ToArchive, e.Held, e.Redacting, len(e.Behind))
		}
		p.end()
		for _, e := range plan.Entities {
			if len(e.Behind) > 0 {
				p.line("%s waits until these projections have read it: %v", e.LegalEntity, e.Behind)
			}
		}
	})
}

func runArchive(ctx context.Context, a *archive.Archiver, s archive.Selection, o *archiveOptions) error {
	result, err := a.Run(ctx, s, o.progress())
	if err != nil {
		return fmt.Errorf("%w. %s are in the archive; run the command again to go on", err, counted(result.Payloads, "payload"))
	}
	return o.show(result, func(p *page) {
		if result.Segments == 0 {
			p.line("Nothing to archive.")
			if result.Stayed > 0 {
				p.line("%s were looked at and stay.", counted(result.Stayed, "payload"))
			}
			return
		}
		p.line("%s are archived in %s: %.1f MB, compressed from %.1f MB. %d stay.", counted(result.Payloads, "payload"), counted(result.Segments, "file"),
			float64(result.Stored)/1e6, float64(result.Lines)/1e6, result.Stayed)
		p.line("PostgreSQL uses the space again for new payloads.")
	})
}

// progress shows how far a command is.
func (o *archiveOptions) progress() archive.Progress {
	show := newProgress(o.err, o.terminal)
	return func(le ports.LegalEntity, done, total uint64) {
		if o.terminal {
			show.report(le.Code, int(done), int(total))
		}
	}
}

func showArchive(ctx context.Context, a *archive.Archiver, _ archive.Selection, o *archiveOptions) error {
	status, err := a.Status(ctx)
	if err != nil {
		return err
	}
	return o.show(status, func(p *page) {
		if len(status.Entities) == 0 {
			p.line("Nothing is archived.")
			return
		}
		p.row("TENANT", "LEGAL ENTITY", "FILES", "PAYLOADS", "THROUGH SEQUENCE", "OF", "ARCHIVED AT")
		for _, e := range status.Entities {
			p.row(e.TenantID, e.LegalEntity, e.Segments, e.Payloads, uint64(e.Through), uint64(e.Head), e.ArchivedAt.Format(time.RFC3339))
		}
		p.end()
	})
}

func restoreArchive(ctx context.Context, a *archive.Archiver, s archive.Selection, o *archiveOptions) error {
	if len(s.LegalEntities) != 1 {
		return fault.New(fault.Invalid, "archive.legal_entity_ambiguous", "payloads of one legal entity are restored at a time; name it with --legal-entity, and its tenant with --tenant")
	}
	result, err := a.Restore(ctx, s.LegalEntities[0], event.Sequence(o.From), event.Sequence(o.To), o.Reason, o.progress())
	if err != nil {
		return err
	}
	return o.show(result, func(p *page) {
		p.line("%s of %s are in the database again.", counted(result.Payloads, "payload"), counted(result.Segments, "file"))
	})
}
