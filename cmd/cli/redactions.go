package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

func redactCommand(modules []plugin.Module) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redact",
		Short: "Redact personal data that is in clear text in old events",
		Long: "redact is for what was never sealed: migrated events, fields that escaped the manifest.\n" +
			"(Sealed values go by `backbone erasure`.) One person requests, another approves, then it\n" +
			"runs: the values become [REDACTED], the chain stays valid, and an event in the log\n" +
			"proves the new payload. It works on the database itself, as the eraser's role.",
	}
	cmd.AddCommand(
		redactSubcommand(modules, "request", "Request the redaction of values of an event",
			"  backbone redact request --legal-entity DEMF --event 01JQ8E6Z6G3V5T8C9N2M4K7R1P \\\n"+
				"    --pointer /data/remark --reason \"Free text with an address\" --person p-0001",
			requestRedaction, func(cmd *cobra.Command, o *redactOptions) {
				f := cmd.Flags()
				f.StringVar(&o.EventID, "event", "", "id of the event (required)")
				f.StringArrayVar(&o.Pointers, "pointer", nil, "RFC 6901 pointer into the stored payload, below /data; may be repeated (required)")
				f.StringVar(&o.Reason, "reason", "", "why, for colleagues and auditors; no personal data (required)")
				f.StringVar(&o.Person, "person", "", "pseudonymous id of the person who requests (required)")
				required(cmd, "event", "pointer", "reason", "person")
			}),
		redactSubcommand(modules, "approve ID", "Approve a redaction as another person",
			"  backbone redact approve 01JQ8E6Z6G3V5T8C9N2M4K7R1P --legal-entity DEMF --person p-0002",
			approveRedaction, func(cmd *cobra.Command, o *redactOptions) {
				cmd.Args = cobra.ExactArgs(1)
				cmd.Flags().StringVar(&o.Person, "person", "", "pseudonymous id of the person who approves (required)")
				required(cmd, "person")
			}),
		redactSubcommand(modules, "run [ID]", "Carry out an approved redaction, or complete interrupted ones",
			"  backbone redact run 01JQ8E6Z6G3V5T8C9N2M4K7R1P --legal-entity DEMF\n"+
				"  backbone redact run --legal-entity DEMF",
			runRedaction, func(cmd *cobra.Command, o *redactOptions) {
				cmd.Args = cobra.MaximumNArgs(1)
				cmd.Flags().StringVar(&o.DSN, "app-dsn", "", "the application's DSN, to append the event (default: database.dsn, then --data-dir)")
			}),
		redactSubcommand(modules, "list", "List redactions and how far they are",
			"  backbone redact list --legal-entity DEMF --json", listRedactions, func(*cobra.Command, *redactOptions) {}),
	)
	return cmd
}

// redactSubcommand builds a subcommand of redact with the flags that all of them have; flags adds
// its own flags and arguments.
func redactSubcommand(modules []plugin.Module, use, short, example string, do func(context.Context, redactOptions) error, flags func(*cobra.Command, *redactOptions)) *cobra.Command {
	o := redactOptions{Modules: modules}
	var path, dataDir string
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			o.Limits, o.output = config.Limits, newOutput(cmd, o.json)
			if len(args) > 0 {
				o.ID = args[0]
			}
			file, _ := readDevFile(dataDir) // without a file the addresses are configured
			o.EraserDSN = cmp.Or(o.EraserDSN, config.Database.EraserDSN.Reveal(), file.EraserDSN)
			o.DSN = cmp.Or(o.DSN, config.Database.DSN.Reveal(), file.DSN)
			if o.EraserDSN == "" {
				return fmt.Errorf("no eraser DSN: give --dsn, set BACKBONE_DATABASE_ERASER_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
			}
			return do(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", configHelp)
	f.StringVar(&o.EraserDSN, "dsn", "", "the eraser's DSN (default: database.eraser_dsn, then --data-dir)")
	f.StringVar(&dataDir, "data-dir", defaultDataDir, "data folder of a running \"backbone dev\"")
	f.StringVar(&o.Tenant, "tenant", "", "id of the tenant, where several have the legal entity")
	f.StringVar(&o.LegalEntity, "legal-entity", "", "code of the legal entity (required)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	required(cmd, "legal-entity")
	flags(cmd, &o)
	return cmd
}

// redactOptions are the flags of `backbone redact`.
type redactOptions struct {
	Modules     []plugin.Module
	EraserDSN   string
	DSN         string // the application's; only to run
	Tenant      string // needed where two tenants have the legal entity
	LegalEntity string
	Person      string
	EventID     string
	Pointers    []string
	Reason      string
	ID          string // of the request
	Limits      configs.Limits
	output
}

// redactionState is a request as the command prints it.
type redactionState struct {
	ID          string         `json:"redaction_id"`
	LegalEntity string         `json:"legal_entity"`
	Sequence    event.Sequence `json:"sequence"`
	Pointers    []string       `json:"pointers"`
	Reason      string         `json:"reason"`
	Status      string         `json:"status"` // requested, approved, redacted (no event yet), completed
	RequestedBy string         `json:"requested_by"`
	ApprovedBy  string         `json:"approved_by,omitempty"`
	OldHash     string         `json:"old_payload_hash,omitempty"`
	NewHash     string         `json:"new_payload_hash,omitempty"`
}

func stateOf(le ports.LegalEntity, s redaction.State) redactionState {
	r := s.Request
	out := redactionState{
		ID: r.ID.String(), LegalEntity: le.Code, Sequence: r.Sequence, Pointers: r.Pointers, Reason: r.Reason, Status: "requested",
		RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy,
	}
	if r.ApprovedBy != "" {
		out.Status = "approved"
	}
	if x := s.Redaction; x != nil {
		out.Status = "redacted"
		out.OldHash, out.NewHash = fmt.Sprintf("%x", x.OldPayloadHash), fmt.Sprintf("%x", x.NewPayloadHash)
		if s.Announced {
			out.Status = "completed"
		}
	}
	return out
}

func (o *redactOptions) printStates(states ...redactionState) error {
	return o.show(states, func(p *page) {
		p.row("REDACTION", "LEGAL ENTITY", "SEQUENCE", "STATUS", "REQUESTED BY", "APPROVED BY", "POINTERS")
		for _, s := range states {
			p.row(s.ID, s.LegalEntity, s.Sequence, s.Status, s.RequestedBy, cmp.Or(s.ApprovedBy, "-"), strings.Join(s.Pointers, " "))
		}
	})
}

func parseRedactionID(text string) (event.ID, error) {
	id, err := event.ParseID(text)
	if err != nil {
		return id, fault.New(fault.Invalid, "redaction.id_invalid", "this is not the id of a redaction; take it from `backbone redact list`")
	}
	return id, nil
}

// requestRedaction asks to redact values of an event.
func requestRedaction(ctx context.Context, o redactOptions) error {
	id, err := event.ParseID(o.EventID)
	if err != nil {
		return fault.New(fault.Invalid, "redaction.event_invalid", "--event is not an event id; take the 26 characters of the event")
	}
	r, err := openRedactor(ctx, o, false)
	if err != nil {
		return err
	}
	defer r.Close()
	request, err := r.service.Request(ctx, r.entity, id, o.Pointers, o.Reason, o.Person)
	if err != nil {
		return err
	}
	return o.printStates(stateOf(r.entity, redaction.State{Request: request}))
}

// approveRedaction is the second person's approval.
func approveRedaction(ctx context.Context, o redactOptions) error {
	id, err := parseRedactionID(o.ID)
	if err != nil {
		return err
	}
	r, err := openRedactor(ctx, o, false)
	if err != nil {
		return err
	}
	defer r.Close()
	request, err := r.service.Approve(ctx, r.entity, id, o.Person)
	if err != nil {
		return err
	}
	return o.printStates(stateOf(r.entity, redaction.State{Request: request}))
}

// runRedaction executes a request; without an id it completes interrupted ones.
func runRedaction(ctx context.Context, o redactOptions) error {
	var id event.ID
	if o.ID != "" {
		var err error
		if id, err = parseRedactionID(o.ID); err != nil {
			return err
		}
	}
	r, err := openRedactor(ctx, o, true)
	if err != nil {
		return err
	}
	defer r.Close()
	if o.ID == "" {
		n, err := r.service.Repair(ctx, r.entity)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(o.out, "%d interrupted redactions completed.\n", n)
		return err
	}
	if _, err := r.service.Run(ctx, r.entity, id); err != nil {
		return err
	}
	states, err := r.service.List(ctx, r.entity)
	if err != nil {
		return err
	}
	for _, s := range states {
		if s.Request.ID == id {
			if err := o.printStates(stateOf(r.entity, s)); err != nil {
				return err
			}
		}
	}
	if !o.json {
		_, err = fmt.Fprintln(o.out, "Read models that copied the value keep it until they are rebuilt, and backups until they are deleted.")
	}
	return err
}

// listRedactions lists requests with their outcomes.
func listRedactions(ctx context.Context, o redactOptions) error {
	r, err := openRedactor(ctx, o, false)
	if err != nil {
		return err
	}
	defer r.Close()
	states, err := r.service.List(ctx, r.entity)
	if err != nil {
		return err
	}
	out := make([]redactionState, len(states))
	for i, s := range states {
		out[i] = stateOf(r.entity, s)
	}
	return o.printStates(out...)
}

// redactor is an open redaction service and what to close after it.
type redactor struct {
	service *redaction.Service
	entity  ports.LegalEntity
	close   []func()
}

func (r *redactor) Close() {
	for _, f := range r.close {
		f()
	}
}

// openRedactor connects as the eraser and, to append the event of a redaction, as the
// application, which is the only role that can.
func openRedactor(ctx context.Context, o redactOptions, announce bool) (r *redactor, err error) {
	r = &redactor{}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	redactions, err := eventlog.OpenRedactor(ctx, o.EraserDSN)
	if err != nil {
		return r, err
	}
	r.close = append(r.close, redactions.Close)
	log, err := wire.OpenReader(ctx, o.EraserDSN)
	if err != nil {
		return r, err
	}
	r.close = append(r.close, log.Close)
	if r.entity, err = findLegalEntity(ctx, log.Directory, o.Tenant, o.LegalEntity); err != nil {
		return r, err
	}
	c := redaction.Config{Redactions: redactions, Events: log.Events, Clock: system.Clock{}, IDs: system.NewIDs()}
	if announce {
		config := configs.Default()
		config.Database.DSN = configs.DSN(o.DSN)
		store, err := wire.OpenStore(ctx, config)
		if err != nil {
			return r, err
		}
		r.close = append(r.close, store.Close)
		if c.Announcer, err = wire.NewRedactionAnnouncer(ctx, store, o.Limits, o.Modules); err != nil {
			return r, err
		}
	}
	r.service = redaction.New(c)
	return r, nil
}
