package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

func bootstrapCommand(modules []plugin.Module) *cobra.Command {
	var path string
	o := bootstrapOptions{Modules: modules}
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Make the first tenant and its first administrator",
		Long: "bootstrap fixes the log's name, which enters every checksum and can never change,\n" +
			"and prints the first administrator's access token once. Only its hash is kept.",
		Example: "  backbone bootstrap --log-name ledger.example.org --tenant acme --admin p-0001",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			token, err := bootstrap(cmd.Context(), config, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Log %s, tenant %s. The administrator's token, shown once:\n", o.LogName, o.Tenant)
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", configHelp)
	f.StringVar(&o.LogName, "log-name", "", "name of the log, like a host name (required)")
	f.Uint16Var(&o.Deployment, "deployment", 0, "number of this deployment, 0 to 4095; it is part of every partition id")
	f.StringVar(&o.Tenant, "tenant", "", "id of the first tenant (required)")
	f.StringVar(&o.Admin, "admin", "", "pseudonymous id of the first administrator's person, such as p-0001 (required)")
	required(cmd, "log-name", "tenant", "admin")
	return cmd
}

func enrollCommand(modules []plugin.Module, roles []string) *cobra.Command {
	var path string
	o := enrollOptions{Modules: modules}
	cmd := &cobra.Command{
		Use:   "enroll",
		Short: "Enroll a further person or service",
		Long: "enroll stores a principal and prints its access token once. Roles:\n" + roleNames(roles) + ".\n\n" +
			"Access lasts a year, or as long as --valid-for says. A principal whose access has expired is enrolled again the same way, with\n" +
			"the roles that are given now; --renew replaces a token that is still good, such as a lost one, and\n" +
			"without --role leaves the rights as they are. The token before is good no longer.\n\n" +
			"A new principal may see all legal entities unless --legal-entity names some. A principal with\n" +
			"some legal entities keeps them until others are named, or --all-legal-entities is given. A\n" +
			"person never becomes a service, nor a service a person.\n\n" +
			"A person's name is stored sealed, shown to auditors alone, and erased with the person. It needs the key\n" +
			"service that nodes use, in the same configuration (kms, erasure.export_directory, database.eraser_dsn).\n" +
			"Without --name no key service is needed, and a name from before stays.\n\n" +
			"A service sees and writes what its modules own: their events, streams, intents and reports. It\n" +
			"may also read the event types that --contracted-type names, and reads personal data in clear of\n" +
			"the classes that --pii-class names (" + joinTexts(shredding.Classes()) + "),\n" +
			"in types of its modules. A person answers for the service and counts as having done what it\n" +
			"does: what the service submits, this person cannot approve. The trust level stands in its events:\n" +
			"unchecked (passed on as received, the default), checked (checked against rules by the service),\n" +
			"official (from a source of record, such as a bank).",
		Example: "  backbone enroll --tenant acme --person p-0002 --role ap_clerk --legal-entity USMF\n" +
			"  backbone enroll --config /etc/backbone.yaml --tenant acme --person p-0003 --role controller --name \"Anna Meyer\"\n" +
			"  backbone enroll --tenant acme --person s-invoices --role importer --service --responsible p-0002 --module ap\n" +
			"  backbone enroll --tenant acme --person s-hr --role module --service --responsible p-0002 --module hr --pii-class contact\n" +
			"  backbone enroll --tenant acme --person p-0002 --renew\n" +
			"  backbone enroll --tenant acme --person p-0002 --renew --role controller --all-legal-entities",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			token, renewed, err := enrollPrincipal(cmd.Context(), config, o)
			if err != nil {
				return err
			}
			again := ""
			if renewed {
				again = "again "
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s of tenant %s has access %sfor %s with this token, shown once:\n", o.Person, o.Tenant, again, lifetime(o.ValidFor))
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", configHelp)
	f.StringVar(&o.Tenant, "tenant", "", "id of the tenant (required)")
	f.StringVar(&o.Person, "person", "", "pseudonymous id of the person or service (required)")
	f.StringVar(&o.Name, "name", "", "name of the person, at most 200 bytes, stored sealed")
	f.StringSliceVar(&o.Roles, "role", nil, "role; may be given several times (required but for --renew)")
	f.StringSliceVar(&o.LegalEntities, "legal-entity", nil, "only these legal entities (default: all of the tenant, or as before)")
	f.BoolVar(&o.Everywhere, "all-legal-entities", false, "all legal entities of the tenant, also for a principal that had some only")
	f.BoolVar(&o.Service, "service", false, "a service identity, not a person; it never approves")
	f.StringVar(&o.Responsible, "responsible", "", "id of the person who answers for the service (required for a new service)")
	f.StringSliceVar(&o.BoundTo, "module", nil, "module of the service; may be given several times (required for a new service)")
	f.StringSliceVar(&o.ContractedTypes, "contracted-type", nil, "event type of another module that the service reads; may be given several times")
	f.StringSliceVar(&o.PIIClasses, "pii-class", nil, "class of personal data that the service reads in clear; may be given several times")
	f.StringVar(&o.TrustLevel, "trust-level", "", "trust level of the service's events: "+joinTexts(ports.TrustLevels()))
	f.BoolVar(&o.Renew, "renew", false, "replace a token that is still good")
	f.DurationVar(&o.ValidFor, "valid-for", tenancy.TokenLifetime, "how long the token is good, at most a year")
	f.StringVar(&o.Reason, "reason", "", "why, for the administrative log, without personal data")
	cmd.MarkFlagsMutuallyExclusive("legal-entity", "all-legal-entities")
	required(cmd, "tenant", "person")
	return cmd
}

func revokeCommand(modules []plugin.Module) *cobra.Command {
	var path, tenant, person, reason, server, token string
	cmd := &cobra.Command{
		Use:   "revoke",
		Short: "End all access of a person or service",
		Long: "revoke ends every login of a person or service; their tokens are good no longer, on all nodes within\n" +
			"seconds. The administrative log keeps the reason, so write no personal data there. To let them in\n" +
			"again, enroll them. An administrator with a token names --server; the operator of the installation\n" +
			"names --tenant and has its database.",
		Example: "  backbone revoke --server https://backbone.example.org --person p-0002 --reason \"Left the company\"\n" +
			"  backbone revoke --tenant acme --person p-0002 --reason \"Left the company\"",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if server != "" {
				s, err := connect(cmd, server, token, "client.token_missing", false)
				if err == nil {
					_, err = s.RevokePrincipal(cmd.Context(), person, client.PrincipalReason{Reason: reason})
				}
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has no access any more.\n", person)
				return err
			}
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			if config.Database.DSN == "" {
				return fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN")
			}
			app, err := wire.Open(cmd.Context(), config, wire.Options{Modules: modules})
			if err != nil {
				return err
			}
			defer app.Close()
			if err := app.Tenancy.Revoke(cmd.Context(), nil, tenant, person, reason); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s of tenant %s has no access any more.\n", person, tenant)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", configHelp)
	f.StringVar(&tenant, "tenant", "", "id of the tenant, without --server")
	f.StringVar(&person, "person", "", "pseudonymous id of the person or service (required)")
	f.StringVar(&reason, "reason", "", "why, without personal data (required)")
	f.StringVar(&server, "server", "", "ask this server as an administrator, instead of opening the database")
	tokenFlag(cmd, &token)
	cmd.MarkFlagsOneRequired("server", "tenant")
	cmd.MarkFlagsMutuallyExclusive("server", "tenant")
	required(cmd, "person", "reason")
	return cmd
}

func reviewCommand() *cobra.Command {
	var person, reason, version string
	cmd := &cobra.Command{
		Use:   "review",
		Short: "Confirm the rights of a person or service after an access review",
		Long: "review records in the administrative log that an administrator looked at the rights of a person or\n" +
			"service and that they stay. With --version, as in \"backbone principals\", the rights must still be\n" +
			"those that were looked at.",
		Example: "  backbone review --person p-0002 --version 3 --reason \"Yearly review\"",
		Args:    cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&person, "person", "", "pseudonymous id of the person or service (required)")
	f.StringVar(&reason, "reason", "", "what was reviewed and why, without personal data (required)")
	f.StringVar(&version, "version", "", "version that was looked at (default: the rights as they are)")
	required(cmd, "person", "reason")
	return serverCommand(cmd, func(ctx context.Context, s *session, _ []string) error {
		list, err := s.ReviewPrincipal(ctx, person, client.PrincipalReview{Reason: reason, Version: version}, s.keep())
		return s.principals(list, err)
	})
}

func principalsCommand() *cobra.Command {
	var person string
	cmd := &cobra.Command{
		Use:     "principals",
		Short:   "List persons and services with their rights",
		Example: "  backbone principals\n  backbone principals --person p-0002",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&person, "person", "", "only this person or service")
	return serverCommand(cmd, func(ctx context.Context, s *session, _ []string) error {
		var all client.PrincipalList
		for q := (client.ListPrincipalsParams{PersonID: person, Limit: wholePage}); ; {
			list, err := s.ListPrincipals(ctx, q)
			if err != nil {
				return err
			}
			all.Principals = append(all.Principals, list.Principals...)
			if q.Cursor = list.NextCursor; q.Cursor == "" {
				return s.show(all, func(p *page) { p.principals(all) })
			}
		}
	})
}

func (s *session) principals(list client.PrincipalList, err error) error {
	if err != nil {
		return err
	}
	return s.print(func(p *page) { p.principals(list) })
}

func (p *page) principals(list client.PrincipalList) {
	p.row("PERSON", "NAME", "KIND", "STATUS", "ROLES", "LEGAL ENTITIES", "EXPIRES", "REVIEWED", "VERSION")
	day := func(at time.Time) string {
		if at.IsZero() {
			return "-"
		}
		return at.UTC().Format(time.DateOnly)
	}
	for _, x := range list.Principals {
		entities := "all"
		if len(x.LegalEntities) > 0 {
			entities = strings.Join(x.LegalEntities, ",")
		}
		reviewed := day(x.ReviewedAt)
		if x.ReviewedBy != "" {
			reviewed += " by " + x.ReviewedBy
		}
		p.row(x.PersonID, cmp.Or(x.Name, "-"), x.Kind, x.Status, strings.Join(x.Roles, ","), entities, day(x.ExpiresAt), reviewed, x.Version)
	}
}

// lifetime words how long a token is good.
func lifetime(d time.Duration) string {
	if d == tenancy.TokenLifetime {
		return "a year"
	}
	return d.String()
}

// roleNames lists roles, wrapped for a terminal.
func roleNames(roles []string) string {
	var text strings.Builder
	width := 0
	for i, role := range roles {
		if i > 0 {
			text.WriteString(",")
			width++
			if width+1+len(role) > 90 {
				text.WriteString("\n")
				width = 0
			} else {
				text.WriteString(" ")
				width++
			}
		}
		text.WriteString(role)
		width += len(role)
	}
	return text.String()
}

// bootstrapOptions are the flags of `backbone bootstrap`.
type bootstrapOptions struct {
	Modules    []plugin.Module
	LogName    string
	Deployment uint16
	Tenant     string
	Admin      string
}

// bootstrap names the installation and enrolls the first administrator. It returns the access
// token, which is not stored.
func bootstrap(ctx context.Context, config configs.Config, o bootstrapOptions) (string, error) {
	if config.Database.DSN == "" {
		return "", fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN")
	}
	app, err := wire.Open(ctx, config, wire.Options{Modules: o.Modules, LogName: o.LogName, Deployment: o.Deployment})
	if err != nil {
		return "", err
	}
	defer app.Close()
	_, token, _, err := app.Tenancy.Admit(ctx, nil, tenancy.Application{
		Principal: ports.Principal{TenantID: o.Tenant, PersonID: o.Admin, ActorType: event.Human, Roles: []string{"admin"}}, Everywhere: true, KindGiven: true,
	})
	return token, err
}

// enrollOptions are the flags of `backbone enroll`.
type enrollOptions struct {
	Modules       []plugin.Module
	Tenant        string
	Person        string
	Name          string // sealed, which needs the key service; "": none, or as before
	Roles         []string
	LegalEntities []string // empty: all for a new principal, unchanged for a known one
	Everywhere    bool     // all legal entities, for a known principal too
	Service       bool
	ValidFor      time.Duration
	Reason        string
	Renew         bool // replace a token that is still valid; without Roles the rights stay

	// Of a service: see ports.Binding.
	Responsible     string
	BoundTo         []string // modules
	ContractedTypes []string
	PIIClasses      []string
	TrustLevel      string
}

// enrollPrincipal enrolls a further principal, or renews the access of one, and returns the
// access token, which is not stored.
//
// Faults: config.dsn_missing, those of tenancy.Service.Admit, and with a name those of wire.OpenWithKeys.
func enrollPrincipal(ctx context.Context, config configs.Config, o enrollOptions) (token string, renewed bool, err error) {
	if config.Database.DSN == "" {
		return "", false, fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN")
	}
	open := wire.Open
	if o.Name != "" {
		open = wire.OpenWithKeys
	}
	app, err := open(ctx, config, wire.Options{Modules: o.Modules})
	if err != nil {
		return "", false, err
	}
	defer app.Close()
	kind := event.Human
	if o.Service {
		kind = event.System
	}
	_, token, renewed, err = app.Tenancy.Admit(ctx, nil, tenancy.Application{
		Principal: ports.Principal{
			TenantID: o.Tenant, PersonID: o.Person, Name: o.Name, ActorType: kind, Roles: o.Roles, LegalEntities: o.LegalEntities,
			Binding: ports.Binding{
				ResponsiblePerson: o.Responsible, Modules: o.BoundTo, ContractedTypes: o.ContractedTypes, PIIClasses: convertAll[shredding.Class](o.PIIClasses), TrustLevel: ports.TrustLevel(o.TrustLevel),
			},
		},
		Renew: o.Renew, Everywhere: o.Everywhere, KindGiven: o.Service, ValidFor: o.ValidFor, Reason: o.Reason,
	})
	return token, renewed, err
}

// convertAll converts texts to a type of text.
func convertAll[T ~string](texts []string) []T {
	var out []T
	for _, text := range texts {
		out = append(out, T(text))
	}
	return out
}

func joinTexts[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, text := range list {
		texts[i] = string(text)
	}
	return strings.Join(texts, ", ")
}
