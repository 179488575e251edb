package tamper

import (
	"fmt"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
)

// table is the verdict about a table of the database.
type table struct {
	name string // with its schema
	// target is a condition on the row that attacks edit and delete, and that an invented row is
	// a copy of; "": any row.
	target   string
	columns  []verdict
	deleted  verdict           // of a row
	invented verdict           // a copy of the row under another primary key
	edits    map[string]string // by column: the value that an attack writes, where the default of its type will not do
	invents  map[string]string // by column: the value in an invented row, where another value of the primary key will not do
}

// effect is what becomes of an edit.
type effect string

const (
	proof    effect = "proof"    // `backbone verify` finds it
	compared effect = "compared" // a rebuild heals it, and the comparison of two versions finds it
	healed   effect = "healed"   // a cache that proves itself: its readers answer as they did before
	harmless effect = "harmless" // nothing reads it that matters
)

// verdict is the verdict about columns, or about rows.
type verdict struct {
	effect     effect
	columns    string               // separated by blanks
	finds      []verify.FindingKind // of a proof: the first must be among the findings, and there must be none but these
	projection string               // of rows that are compared
	probe      probe                // of rows that heal
	why        string
}

func proves(columns string, first verify.FindingKind, also ...verify.FindingKind) verdict {
	return verdict{effect: proof, columns: columns, finds: append([]verify.FindingKind{first}, also...)}
}

func heals(columns string, p probe) verdict {
	return verdict{effect: healed, columns: columns, probe: p}
}

func isHarmless(columns, why string) verdict {
	return verdict{effect: harmless, columns: columns, why: why}
}

func isCompared(columns, projection string) verdict {
	return verdict{effect: compared, columns: columns, projection: projection}
}

func harmlessTable(name, columns, why string) table {
	return table{name: name, columns: []verdict{isHarmless(columns, why)}, deleted: isHarmless("", why), invented: isHarmless("", why)}
}

// activeVersions are the versions of projections that readers see in new books.
var activeVersions = map[string]int{
	ap.OpenItems: ap.OpenItemsVersion, ap.Vendors: ap.VendorsVersion, ap.Tax: ap.TaxVersion, ap.Payments: ap.PaymentsVersion, ap.PurchaseOrders: ap.PurchaseOrdersVersion,
	gl.ProjectionLedger: 2, gl.ProjectionClosing: 1, gl.ProjectionBank: 2,
}

// readModel is a table that a projection derives from the log.
// In the columns of constants a constraint allows one value only.
func readModel(name, projection, columns string, constants ...string) table {
	c := isCompared(columns, projection)
	all := []verdict{c}
	for _, name := range constants {
		all = append(all, isHarmless(name, oneValue))
	}
	return table{
		name: name, target: fmt.Sprintf("version = %d", activeVersions[projection]), columns: all, deleted: c, invented: c,
		edits: map[string]string{
			"version": "version + 100", "sequence": "sequence + 1000", "until_sequence": "until_sequence - 1", "line_number": "line_number + 1000",
			"kind": "'credit_memo'", "status": "'blocked'", "state": "'rejected'", "side": "CASE side WHEN 'debit' THEN 'credit' ELSE 'debit' END",
			"step": "CASE WHEN step = 'exported' THEN 'rejected' WHEN step = 'failed' THEN 'voided' WHEN step IN ('executed', 'voided', 'status_reported') THEN 'failed' ELSE 'exported' END",
		},
		invents: map[string]string{"version": "version"},
	}
}

const (
	// withheld is accepted because a consumer can compare, see docs/subscriptions.md.
	withheld = "it withholds deliveries or repeats them, as a session with the node's rights can in other ways; what was delivered is no part of the log, " +
		"and a consumer compares what it received with the log"

	isAttempt   = "it counts failed attempts, for the pause until the next one and for people to read"
	oneValue    = "its constraint allows one value only"
	isMigration = "it says which migrations have run: a wrong row makes the next migration fail"
	isHeartbeat = "nodes write it every few seconds, and a wrong row shares work out unevenly until then"
	isSize      = "the size is counted for the statistics of the database's storage"
	onRestart   = "it is a time for operators to read"
)

// chainFindings are all that an edit of one event can cause.
var chainFindings = []verify.FindingKind{
	verify.ChecksumMismatch, verify.SequenceGap, verify.TimeBackwards, verify.ForeignScope, verify.PayloadMissing, verify.PayloadMismatch, verify.EventUnreadable,
	verify.PayloadExtra, verify.HiddenEvents, verify.StreamMismatch, verify.IntentMismatch, verify.SealedMalformed, verify.PersonalRowExtra,
	verify.GlobalLogMismatch,
}

// keyFindings are what rows of keys can show when a type has other rules or none.
var keyFindings = []verify.FindingKind{verify.KeyMismatch, verify.BusinessKeyMismatch, verify.NumberMismatch}

// receiptsDiffer stands for the finding of comparing the receipts in the export folder.
const receiptsDiffer verify.FindingKind = "receipts"

// tilesTable has rows only in an installation with 256 events, see completeTile.
const tilesTable = "backbone.log_tiles"

// verdicts has every table of the schemas backbone, keystore, ap and gl.
var verdicts = []table{
	{
		name: "backbone.events", target: "type = 'ap.invoice.posted'",
		columns: []verdict{
			proves("sequence partition_id", verify.SequenceGap, append(chainFindings, verify.LegalEntityMismatch)...),
			proves("occurred_at recorded_at schema_version effective_date caused_by_partition id caused_by type tenant_id legal_entity division region site custom_scopes actor_type "+
				"actor_id actor_name actor_details correlation_id intent_id stream_version stream_type stream_id tags pii source_system source_channel source_reference rules_evaluated payload_hash content_encoding checksum", verify.ChecksumMismatch, chainFindings...),
		},
		deleted:  proves("", verify.SequenceGap, chainFindings...),
		invented: proves("", verify.ChecksumMismatch, chainFindings...),
		edits: map[string]string{
			"sequence": "-5", "recorded_at": "recorded_at - interval '1 microsecond'", "pii": `'{"/data/name":"contact"}'`,
			"custom_scopes": `'{"a":"b"}'`, "actor_details": `'{"session_id":"s"}'`, "rules_evaluated": "'[]'", "partition_id": "1",
		},
		invents: map[string]string{
			"sequence": "(SELECT max(x.sequence) + 1 FROM backbone.events x WHERE x.partition_id = t.partition_id)", "id": "gen_random_uuid()", "stream_version": "stream_version + 9",
		},
	},
	{
		name: "backbone.event_payloads",
		columns: []verdict{
			proves("sequence partition_id", verify.PayloadMissing, verify.PayloadExtra, verify.LegalEntityMismatch, verify.IntentMismatch),
			proves("salt payload", verify.PayloadMismatch, verify.IntentMismatch),
			proves("redactions", verify.RedactionUnrecorded),
		},
		deleted:  proves("", verify.PayloadMissing, verify.IntentMismatch),
		invented: proves("", verify.PayloadExtra),
		target:   "sequence = 1",
		invents:  map[string]string{"sequence": "(SELECT max(x.sequence) + 1 FROM backbone.events x WHERE x.partition_id = t.partition_id)"},
		edits: map[string]string{
			"sequence": "-5", "partition_id": "1", "salt": "substr(sha256(salt), 1, 16)", "payload": `'{"data":{"x":1},"dimensions":{},"entity_refs":[]}'`,
			"redactions": `'[{"request":"00000000-0000-0000-0000-000000000001","pointers":["/data/name"],"at":"2026-03-01T00:00:00Z"}]'`,
		},
	},
	{
		name: "backbone.partition_heads",
		columns: []verdict{
			proves("partition_id", verify.LegalEntityMismatch),
			proves("genesis", verify.GenesisMismatch),
		},
		deleted:  proves("", verify.LegalEntityMismatch),
		invented: proves("", verify.LegalEntityMismatch),
		invents:  map[string]string{"partition_id": "partition_id + 1"},
	},
	{
		name: "backbone.event_keys",
		columns: []verdict{
			proves("sequence partition_id type_no key", verify.KeyMismatch),
		},
		deleted:  proves("", verify.KeyMismatch),
		invented: proves("", verify.KeyMismatch),
		edits:    map[string]string{"partition_id": "1"},
	},
	{
		name:     "backbone.business_keys",
		columns:  []verdict{proves("sequence partition_id event_id event_type key document", verify.BusinessKeyMismatch)},
		deleted:  proves("", verify.BusinessKeyMismatch),
		invented: proves("", verify.BusinessKeyMismatch),
		edits:    map[string]string{"partition_id": "1", "event_type": "'ap.vendor.registered'"},
		invents:  map[string]string{"event_type": "event_type"},
		target:   "event_type = 'ap.invoice.submitted'",
	},
	{
		name:     "backbone.stream_versions",
		columns:  []verdict{proves("version first_sequence last_sequence partition_id stream_type stream_id lifecycle metadata readable_from metadata_version", verify.StreamMismatch)},
		deleted:  proves("", verify.StreamMismatch),
		invented: proves("", verify.StreamMismatch),
		target:   "metadata IS NOT NULL",
		edits:    map[string]string{"partition_id": "1", "lifecycle": "'deleted'", "metadata": `'{"max_count":8}'`, "readable_from": "2"},
	},
	{
		name: "backbone.number_series", target: "series LIKE 'SL-%'",
		columns: []verdict{proves("next_number partition_id series unbound_through", verify.NumberMismatch)},
		deleted: proves("", verify.NumberMismatch), invented: proves("", verify.NumberMismatch),
		edits: map[string]string{"partition_id": "1"},
	},
	{
		name: "backbone.idempotency_keys",
		columns: []verdict{
			proves("first_sequence expires_at partition_id event_count intent_id key fingerprint", verify.RequestMismatch),
			isHarmless("bound", "its constraint allows only rows from before events bound them, which expire, to say so"),
		},
		deleted: proves("", verify.RequestMismatch), invented: proves("", verify.RequestMismatch),
		edits: map[string]string{"partition_id": "1"},
	},
	{
		name: "backbone.intents", target: "status = 'pending_approval'",
		columns: []verdict{proves("created_at updated_at first_sequence partition_id event_count revision effective_date id caused_by legal_entity type status actor_type actor_id actor_name "+
			"actor_details person_id roles correlation_id source_system source_channel source_reference plan_hash need approvals rules refusal payload last_sequence documents caused_by_partition", verify.IntentMismatch)},
		deleted: proves("", verify.IntentMismatch), invented: proves("", verify.IntentMismatch),
		edits: map[string]string{
			"partition_id": "1", "payload": `'{"amount":9}'`, "actor_details": `'{"session_id":"s"}'`, "need": `'[{"roles":["x"],"reason":"r","rule_id":"r"}]'`,
			"approvals": `'[{"person_id":"p","actor_id":"p","role":"r","decision":"approved","at":"2026-03-01T00:00:00Z"}]'`, "rules": "'[]'", "refusal": `'{"code":"x"}'`,
		},
		invents: map[string]string{"last_sequence": "-1"}, // as one from before events bound intents
	},
	{
		name: "backbone.intent_pii_subjects", columns: []verdict{
			proves("partition_id class intent_id subject_id", verify.PersonalRowMissing, verify.KeyStoreMismatch),
			isHarmless("paths", "the preview of an erasure counts them; the erasure destroys the key"),
		},
		deleted: proves("", verify.PersonalRowMissing), invented: isHarmless("", "an erasure looks there in vain"),
		edits: map[string]string{"partition_id": "1"},
	},
	{
		name: "backbone.event_pii_subjects", target: "subject_id LIKE 'contact:%'",
		columns: []verdict{
			proves("sequence subject_id class", verify.PersonalRowMissing, verify.PersonalRowExtra, verify.KeyStoreMismatch),
			proves("partition_id", verify.PersonalRowMissing),
			proves("paths", verify.PersonalRowExtra),
		},
		deleted: proves("", verify.PersonalRowMissing), invented: proves("", verify.PersonalRowExtra, verify.KeyStoreMismatch),
		edits: map[string]string{"partition_id": "1"},
	},
	{
		name: "backbone.pii_redactions",
		columns: []verdict{
			proves("sequence", verify.RedactionMismatch, verify.PayloadMismatch),
			proves("partition_id", verify.RedactionUnrecorded, verify.PayloadMismatch),
			proves("id", verify.RedactionUnrecorded, verify.RedactionUnannounced),
			proves("event_id old_payload_hash new_payload_hash requested_by approved_by", verify.RedactionMismatch, verify.RedactionUnapproved),
			proves("pointers", verify.RedactionUnapproved),
			isHarmless("redacted_at reason", "the event that announces the redaction has its time and reason"),
		},
		deleted:  proves("", verify.RedactionUnrecorded, verify.PayloadMismatch),
		invented: proves("", verify.RedactionUnannounced),
		edits:    map[string]string{"sequence": "1", "partition_id": "1"},
		invents:  map[string]string{"id": "gen_random_uuid()", "old_payload_hash": "new_payload_hash", "new_payload_hash": "old_payload_hash"},
	},
	{
		name: "backbone.redaction_requests",
		columns: []verdict{
			proves("requested_at approved_at sequence partition_id id pointers reason requested_by approved_by completed_at revision tenant_id event_id state scope ended_by end_reason preview results",
				verify.RedactionMismatch, verify.RedactionUnapproved),
			isHarmless("attempts last_error updated_at", isAttempt),
		},
		deleted: proves("", verify.RedactionMismatch, verify.RedactionUnapproved), invented: proves("", verify.RedactionMismatch),
		edits: map[string]string{"partition_id": "1", "state": "'rejected', ended_by = 'x'"},
	},
	{
		name: "backbone.installation",
		columns: []verdict{
			isHarmless("singleton", "it is always true"),
			proves("log_name", verify.GenesisMismatch, verify.ChecksumMismatch, verify.LegalEntityMismatch),
			proves("deployment", verify.LegalEntityMismatch),
			isHarmless("created_at", onRestart),
		},
		deleted:  isHarmless("", "no node starts and nothing is verified without it"),
		invented: isHarmless("", "there can be one row only"),
	},
	{
		name: "backbone.legal_entities", target: "code = 'DEMF'",
		columns: []verdict{
			proves("partition_id tenant_id code name time_zone", verify.LegalEntityMismatch, append(chainFindings, verify.GenesisMismatch)...),
			isHarmless("status settings", "nothing reads them"),
			isHarmless("created_at", onRestart),
		},
		deleted:  proves("", verify.LegalEntityMismatch),
		invented: proves("", verify.LegalEntityMismatch),
		edits:    map[string]string{"partition_id": "1"},
		invents:  map[string]string{"partition_id": "partition_id + 1", "code": "'FRMF'"},
	},
	{
		name: "backbone.principals",
		columns: []verdict{isHarmless("tenant_id principal_id person_id actor_type display_name role_label roles legal_entities token_hash development expires_at created_at",
			"nodes adopted the rows into the administrative log and read them no more")},
		deleted: isHarmless("", "as above"), invented: isHarmless("", "as above"),
	},
	{
		name: "backbone.event_types", target: "type = 'ap.invoice.submitted'",
		columns: []verdict{
			proves("type number", verify.KeyMismatch),
			proves("is_shared", verify.RegistrationMismatch),
		},
		deleted:  proves("", verify.KeyMismatch),
		invented: isHarmless("", "it keeps a name and a number from others, which no event has"),
		edits:    map[string]string{"number": "(SELECT max(x.number) + 1 FROM backbone.event_types x)"},
	},
	{
		name: "backbone.event_type_registry", target: "type = 'ap.invoice.submitted'",
		columns: []verdict{
			proves("type schema_version amendment is_active document", verify.RegistrationMismatch, keyFindings...),
			isHarmless("module retention_class", "the document has them, and nothing reads these"),
			isHarmless("tenant_id", oneValue),
			isHarmless("registered_at registered_by", "people read it; a built-in version comes with the release"),
		},
		deleted: proves("", verify.RegistrationMismatch, keyFindings...), invented: proves("", verify.RegistrationMismatch, keyFindings...),
		edits:   map[string]string{"schema_version": "schema_version + 100", "document": "replace(document::text, '{', '{ ')::json"},
		invents: map[string]string{"type": "type", "schema_version": "schema_version + 100"},
	},
	{
		name: "backbone.event_type_registry", target: "type = '" + formerType + "'",
		columns: []verdict{
			proves("type schema_version is_active document registered_at registered_by", verify.RegistrationMismatch),
			isHarmless("module retention_class", "the document has them, and nothing reads these"),
			isHarmless("amendment", "a version of a tenant has one row, and nothing reads this of it"),
			isHarmless("tenant_id", oneValue),
		},
		deleted: proves("", verify.RegistrationMismatch), invented: proves("", verify.RegistrationMismatch),
		edits: map[string]string{"document": "replace(document::text, '{', '{ ')::json"},
	},
	{
		name:    "backbone.event_type_generation",
		columns: []verdict{proves("last_change tenant_id", verify.SequenceGap)},
		deleted: proves("", verify.SequenceGap), invented: proves("", verify.SequenceGap),
		invents: map[string]string{"tenant_id": "'x'"},
	},
	{
		name: "backbone.event_type_history",
		columns: []verdict{
			proves("changed_at change schema_version type action actor reason digest checksum", verify.ChecksumMismatch, verify.RegistrationMismatch, verify.SequenceGap),
			proves("tenant_id", verify.SequenceGap, verify.RegistrationMismatch, verify.ChecksumMismatch),
		},
		deleted:  proves("", verify.SequenceGap, verify.RegistrationMismatch),
		invented: proves("", verify.ChecksumMismatch, verify.RegistrationMismatch, verify.SequenceGap),
		edits:    map[string]string{"action": "'registry.type.deprecated'"},
	},
	{
		name: "backbone.subscriptions",
		columns: []verdict{
			proves("uid tenant_id id subscriber_type subscriber_id definition status owner created_at", verify.SubscriptionMismatch),
			isHarmless("revision updated_at failures failure_code failed_at", "what a breaker has counted: at most deliveries pause, which operators see"),
		},
		deleted: proves("", verify.SubscriptionMismatch), invented: proves("", verify.SubscriptionMismatch),
		edits:   map[string]string{"status": "'paused'", "definition": `replace(definition::text, 'fuelled', 'fueled')::json`},
		invents: map[string]string{"uid": "gen_random_uuid()"},
	},
	harmlessTable("backbone.subscription_consumers", "subscription consumer active_until", "it shares messages out between consumers, until it expires"),
	{
		name: "backbone.subscription_cursors", target: "parked > 0",
		columns: []verdict{
			proves("read_through", verify.CheckpointMismatch), // beyond the end
			proves("checkpoint parked", verify.SubscriptionMismatch),
			isHarmless("subscription partition_id", "a cursor that is missing is added where the subscription began"),
			isHarmless("pending counts updated_at", "they say when the checkpoint is written, and what people read"),
			isHarmless("term", "nothing reads it"),
		},
		deleted: isHarmless("", "it is added again where the subscription began"), invented: isHarmless("", "no subscription reads it"),
		edits: map[string]string{"read_through": "read_through + 1000000", "checkpoint": "read_through + 1"},
	},
	{
		name:    "backbone.subscription_decisions", // of an earlier release
		columns: []verdict{proves("partition_id id tenant_id subscription sequence event_id action actor reason code at", verify.SubscriptionMismatch)},
		deleted: proves("", verify.SubscriptionMismatch), invented: proves("", verify.SubscriptionMismatch),
		edits: map[string]string{"action": "'replay'"},
	},
	{
		name: "backbone.subscription_messages",
		columns: []verdict{
			proves("sequence event_id", verify.SubscriptionMismatch),
			isHarmless("subscription partition_id order_key state consumer attempts due_at handed_at code detail changed_at", withheld),
		},
		deleted: isHarmless("", withheld), invented: proves("", verify.SubscriptionMismatch),
		invents: map[string]string{"subscription": "subscription"},
	},
	{
		name: "backbone.subscription_parked",
		columns: []verdict{
			proves("subscription partition_id sequence event_id", verify.SubscriptionMismatch),
			isHarmless("order_key consumer attempts handed_at code detail changed_at", "people read it; it is delivered only if a person decides so, which is recorded"),
		},
		deleted: proves("", verify.SubscriptionMismatch), invented: proves("", verify.SubscriptionMismatch),
		edits:   map[string]string{"partition_id": "1"},
		invents: map[string]string{"subscription": "subscription"},
	},
	harmlessTable("backbone.subscription_tenants", "tenant_id", "its lock keeps apart those that count the subscriptions of a tenant"),
	harmlessTable("backbone.webhook_attempts", "subscription event_id attempted_at next_at sequence partition_id attempt status duration_ms code", "people read it"),
	{
		name: "backbone.webhook_endpoints",
		columns: []verdict{
			proves("subscription tenant_id url secret_number previous_until disabled_at disabled_code revision created_at updated_at header_names headers personal_reason", verify.WebhookMismatch),
		},
		deleted: proves("", verify.WebhookMismatch), invented: proves("", verify.WebhookMismatch),
		edits: map[string]string{"previous_until": "now()", "disabled_at": "now()", "headers": "'x'"},
	},
	harmlessTable("backbone.webhook_hosts", "tenant_id host added_by added_at", "nodes adopted the rows into the administrative log and read them no more"),
	{
		name: "backbone.projections", target: "definition IS NOT NULL AND name LIKE '%/" + spend + "' AND role = 'active'",
		columns: []verdict{
			proves("name definition version role status settings scope", verify.ProjectionMismatch),
			isHarmless("code self_switching base", "they count while a version is being built; its definition is the code of a projection of a tenant"),
			isHarmless("created_at changed_at revision changed_by", "people read it, and a change that meets another one is refused"),
		},
		deleted: proves("", verify.ProjectionMismatch), invented: proves("", verify.ProjectionMismatch),
		edits:   map[string]string{"name": "name || 'x'", "version": "version + 100", "role": "'saved'", "status": "'paused'"},
		invents: map[string]string{"version": "version"},
	},
	{
		name: "backbone.projections", target: "definition IS NOT NULL AND role = 'building'",
		columns: []verdict{
			proves("name definition version role status settings scope self_switching base", verify.ProjectionMismatch),
			isHarmless("code", "the definition is the code of a projection of a tenant"),
			isHarmless("created_at changed_at revision changed_by", "people read it, and a change that meets another one is refused"),
		},
		deleted: isHarmless("", "readers see no version that is being built; who ordered it sees that it is gone"), invented: proves("", verify.ProjectionMismatch),
		edits:   map[string]string{"name": "name || 'x'", "version": "version + 100", "role": "'retained'", "status": "'stopped'"},
		invents: map[string]string{"version": "version"},
	},
	{
		name: "backbone.projections", target: "definition IS NULL AND role = 'active' AND name = '" + ap.Vendors + "'",
		columns: []verdict{
			isCompared("name definition version role scope", ap.Vendors), // or there is nothing to compare, which operators and readers see
			isHarmless("code base self_switching", "at most a node builds the version again, or leaves it behind the log, which operators and readers see; what a person decided is in the log"),
			isHarmless("status settings", "at most the version stays behind the log, which operators and readers see; what a person decided is in the log"),
			isHarmless("created_at changed_at revision changed_by", "people read it, and a change that meets another one is refused"),
		},
		deleted: isCompared("", ap.Vendors), invented: isHarmless("", "no module declares its name"),
		edits:   map[string]string{"version": "version + 100", "role": "'saved'"},
		invents: map[string]string{"version": "version"},
	},
	{
		name: "backbone.access_log", target: "at < now() - interval '90 minutes'", // in an hour that is bound
		columns: []verdict{proves("at partition_id value_count id person_id principal_id kind operation legal_entity subject_id class reason request_id grant_id", verify.AccessMismatch)},
		deleted: proves("", verify.AccessMismatch), invented: proves("", verify.AccessMismatch),
	},
	{
		name: "backbone.publisher_cursors",
		columns: []verdict{isHarmless("published_through term moved_at failed_at partition_id failures publisher last_error",
			"every event of a partition is published with its sequence, which has no gaps: consumers see what a cursor skipped; one beyond the end is found")},
		deleted: isHarmless("", "the events are published again"), invented: isHarmless("", "as for an edit"),
	},
	{
		name: "backbone.paper_contents",
		columns: []verdict{
			proves("partition_id sha256 paper_id sealed", verify.PaperMismatch),
			isHarmless("stored_at", "it decides from when bytes are swept that no event names"),
		},
		deleted:  proves("", verify.PaperMismatch),
		invented: isHarmless("", "no event names it: nothing reads it, and it is swept"),
		// A constraint binds the digest to the bytes.
		edits: map[string]string{"sha256": "sha256(sealed || 'x'), sealed = sealed || 'x'", "sealed": "sealed || 'x', sha256 = sha256(sealed || 'x')"},
	},
	{
		name: "backbone.archive_segments",
		columns: []verdict{
			proves("first_sequence last_sequence event_sequence records object object_digest", verify.ArchiveMismatch, verify.ArchiveDamaged, verify.PayloadMissing, verify.IntentMismatch),
			proves("partition_id", verify.PayloadMissing, verify.IntentMismatch, verify.ArchiveMismatch),
			isHarmless("archived_at", "operators read it"),
		},
		deleted: proves("", verify.PayloadMissing, verify.IntentMismatch), invented: proves("", verify.ArchiveMismatch),
		edits: map[string]string{"last_sequence": "last_sequence + 1"},
	},
	harmlessTable("backbone.archive_states", "first_sequence partition_id first_key packed mac",
		"a page proves that a node has made it; without it, or a state in it, the events are folded from the archive"),
	{
		name:    "backbone.log_ranges",
		columns: []verdict{proves("first_position partition_id first_sequence count", verify.GlobalLogMismatch)},
		deleted: proves("", verify.GlobalLogMismatch), invented: proves("", verify.GlobalLogMismatch),
		edits:   map[string]string{"first_sequence": "first_sequence + 1000", "partition_id": "partition_id + 1000"},
		invents: map[string]string{"first_sequence": "first_sequence + 1000"},
	},
	{
		name:    tilesTable,
		columns: []verdict{proves("level index root hashes", verify.GlobalLogMismatch)},
		deleted: proves("", verify.GlobalLogMismatch), invented: proves("", verify.GlobalLogMismatch),
		edits: map[string]string{"root": "sha256(root)", "hashes": "substring(hashes FROM 33) || substring(hashes FOR 32)"},
	},
	{
		name:     "backbone.log_checkpoints",
		columns:  []verdict{proves("size incarnation root note", verify.GlobalLogMismatch)},
		deleted:  isHarmless("", "the others, and those that were exported, prove the same; without any the next is signed against the newest export"),
		invented: proves("", verify.GlobalLogMismatch),
		edits:    map[string]string{"root": "sha256(root)"},
	},
	harmlessTable("backbone.blind_index", "partition_id kind key_class hash subject_id class event_type path",
		"it decides which ids a search of officers shows; reports and erasures go by event_pii_subjects, and the nodes build it again from the log when its rows and positions are deleted"),
	harmlessTable("backbone.blind_index_positions", "sequence revision partition_id key", "it decides from where nodes build the index; as for its rows"),
	{
		name: "backbone.projection_checkpoints", target: "version = 1",
		columns: []verdict{
			proves("sequence", verify.CheckpointMismatch),
			isHarmless("projection version partition_id", "the projection begins again and stops at the rows that are there, where operators see it; its rows are compared"),
			isHarmless("updated_at status error processed skipped failed attempts first_failed_at last_failed_at next_attempt_at last_event_at", "operators read it; at most the projection stops, or tries again"),
			isHarmless("term", "a holder whose term is not in the row rolls back, and the next one writes its own"),
			isHarmless("generation", "the next page of a report is refused, or not; its rows are compared"),
			isHarmless("redactions", "a snapshot of the projection is not used; values of redacted events are found when the rows are compared"),
		},
		deleted: isHarmless("", "as for its key"), invented: isHarmless("", "no version reads it"),
	},
	{
		name: "backbone.projection_rows", target: "version = (SELECT p.version FROM backbone.projections p WHERE p.role = 'saved')",
		columns: []verdict{heals("sequence partition_id version projection key state", restoreSnapshot)},
		deleted: heals("", restoreSnapshot), invented: heals("", restoreSnapshot),
		edits:   map[string]string{"partition_id": "1", "version": "version + 100"},
		invents: map[string]string{"version": "version", "projection": "projection"},
	},
	// After the rows, which a node removes with a part that seems to be outdated.
	{
		name: "backbone.projection_snapshots",
		columns: []verdict{
			heals("sequence redactions row_count partition_id version projection mac", restoreSnapshot),
			isHarmless("taken_at last_event_at", "people read them; a part that seems not to be taken is not restored"),
		},
		deleted: heals("", restoreSnapshot), invented: heals("", restoreSnapshot),
		edits:   map[string]string{"partition_id": "1", "sequence": "sequence - 1"},
		invents: map[string]string{"version": "version + 100"},
	},
	{
		name: "backbone.projection_rows", target: "version = 1",
		columns: []verdict{isCompared("sequence partition_id version projection key state", spend)},
		deleted: isCompared("", spend), invented: isCompared("", spend),
		edits:   map[string]string{"version": "version + 100"},
		invents: map[string]string{"version": "version", "projection": "projection"},
	},
	{
		name: "backbone.dead_letters", target: "status = 'skipped'",
		columns: []verdict{
			proves("sequence name settled_by reason", verify.ProjectionMismatch),
			isHarmless("kind status partition_id", "the log keeps that a person skipped the event; the rows are compared"),
			isHarmless("version", "letters move with the rows of a legal entity"),
			isHarmless("event_id code detail attempts first_failed_at last_failed_at settled_at", "people read it"),
		},
		deleted: isHarmless("", "as for the status"), invented: proves("", verify.ProjectionMismatch),
		invents: map[string]string{"kind": "kind", "version": "version"},
	},
	{
		name: "backbone.dead_letters", target: "status <> 'skipped'",
		columns: []verdict{isHarmless("sequence partition_id name settled_by reason kind status version event_id code detail attempts first_failed_at last_failed_at settled_at",
			"a node writes it when it comes to the event, and so does a rebuild; the checkpoint says where a projection is halted")},
		deleted: isHarmless("", "as above"), invented: isHarmless("", "people look at an event that nothing is wrong with"),
	},
	{
		name: "backbone.entity_snapshots", target: "entity_type = '" + snapshotEntity + "'",
		columns: []verdict{
			heals("as_of_sequence version event_count created_at partition_id effective_through status entity_type entity_id fold state redactions mac", readEntity),
			isHarmless("size_bytes", isSize),
		},
		deleted: heals("", readEntity), invented: heals("", readEntity),
		edits: map[string]string{"partition_id": "1", "effective_through": "'2000-01-01'", "status": "'stale'"},
		invents: map[string]string{
			"entity_type": "entity_type", "entity_id": "entity_id", "state": "'{}'",
		},
	},
	{
		name: "backbone.stream_snapshots", target: "NOT internal",
		columns: []verdict{
			heals("version created_at partition_id schema_version internal id stream_type stream_id state_type state metadata redactions mac", readClientSnapshot),
			isHarmless("size_bytes", isSize),
		},
		deleted: heals("", readClientSnapshot), invented: heals("", readClientSnapshot),
		edits:   map[string]string{"partition_id": "1"},
		invents: map[string]string{"internal": "internal", "stream_type": "stream_type", "stream_id": "stream_id", "state": "'{}'"},
	},
	{
		name: "backbone.stream_snapshots", target: "internal AND stream_type = 'gl.dimension' AND version = (SELECT max(n.version) FROM backbone.stream_snapshots n WHERE n.internal AND n.stream_type = 'gl.dimension')",
		columns: []verdict{
			heals("version created_at partition_id schema_version internal id stream_type stream_id state_type state metadata redactions mac", planJournal),
			isHarmless("size_bytes", isSize),
		},
		deleted: heals("", planJournal), invented: heals("", planJournal),
		edits:   map[string]string{"partition_id": "1", "state": "'{}'"},
		invents: map[string]string{"internal": "internal", "stream_type": "stream_type", "stream_id": "stream_id", "state": "'{}'"},
	},
	{
		name:    "backbone.leases",
		columns: []verdict{isHarmless("term taken_at expires_at partition_id name holder", "a holder whose term is not in the row rolls back, and a lease that expires is taken again: an edit delays work")},
		deleted: isHarmless("", "the next holder inserts it again"), invented: isHarmless("", "it expires"),
	},
	{
		name: "backbone.nodes", columns: []verdict{isHarmless("seen_at node", isHeartbeat)},
		deleted: isHarmless("", isHeartbeat), invented: isHarmless("", isHeartbeat),
	},
	{
		name: "backbone.work_nodes", columns: []verdict{isHarmless("seen_at work node", isHeartbeat)},
		deleted: isHarmless("", isHeartbeat), invented: isHarmless("", isHeartbeat),
	},
	migrations("backbone.migrations_ap"), migrations("backbone.migrations_backbone"), migrations("backbone.migrations_gl"), migrations("keystore.migrations"),
	migrationLock("backbone.migration_lock"), migrationLock("keystore.migration_lock"),

	readModel("ap.documents", ap.OpenItems, "sequence partition_id invoice_date due_date document_id vendor_id kind invoice_number currency dimensions version action total discount body"),
	readModel("ap.document_entries", ap.OpenItems, "sequence partition_id effective_date event_id document_id action amount functional_amount functional_currency version body_sequence due_date vendor_id currency counterpart"),
	readModel("ap.document_holds", ap.OpenItems, "sequence partition_id effective_date released document_id hold_id kind blocks version"),
	readModel("ap.document_steps", ap.OpenItems, "sequence recorded_at partition_id version effective_date event_id document_id action actor_type actor_id on_behalf_of data"),
	readModel("ap.document_states", ap.OpenItems, "sequence until_sequence recorded_at partition_id version document_id state"),
	readModel("ap.ledgers", ap.OpenItems, "sequence partition_id functional_currency version"),
	readModel("ap.purchase_orders", ap.PurchaseOrders, "sequence partition_id version effective_date revision event_id po_reference vendor_id currency status"),
	readModel("ap.purchase_order_lines", ap.PurchaseOrders, "sequence partition_id version line_number po_reference line item_id quantity unit_price price_base_quantity account"),
	readModel("ap.purchase_order_quantities", ap.PurchaseOrders, "sequence partition_id version effective_date position po_reference line vendor_id document_id received billed"),
	readModel("ap.tax_settings", ap.Tax, "sequence partition_id version tax_group rate input_account output_account functional_currency"),
	readModel("ap.tax_lines", ap.Tax, "sequence partition_id version line_number effective_date period tax_group part currency amount functional_amount functional_currency event_id journal_number document_id payment_id"),
	readModel("ap.vendors", ap.Vendors, "sequence partition_id effective_date natural_person event_id vendor_id country status subject name version"),
	readModel("ap.vendor_contacts", ap.Vendors, "sequence partition_id effective_date removed vendor_id contact_id subject name email phone job_function version"),
	readModel("ap.vendor_accounts", ap.Vendors, "sequence partition_id effective_date vendor_id request_id currency state subject iban account bank bic holder version"),
	readModel("ap.payments", ap.Payments, "sequence partition_id version position documents effective_date pay_date run_id payment_id vendor_id bank_account currency amount discount event_id"),
	readModel("ap.payment_run_steps", ap.Payments, "recorded_at sequence partition_id version effective_date pay_date step run_id payment_id bank_account actor message_id file_sha256 event_id"),
	readModel("ap.payment_steps", ap.Payments, "recorded_at sequence partition_id version effective_date executed_on step payment_id actor bank_reference bank_status reason_code event_id"),
	readModel("gl.account_blocks", gl.ProjectionLedger, "sequence partition_id version blocked code"),
	readModel("gl.accounts", gl.ProjectionLedger, "sequence partition_id code name type version event_id normal_side parent postable control"),
	readModel("gl.bank_discards", gl.ProjectionBank, "sequence partition_id version part account statement_id"),
	readModel("gl.bank_journals", gl.ProjectionBank, "sequence partition_id version journal_id"),
	readModel("gl.bank_lines", gl.ProjectionBank, "sequence partition_id version line_number part booking_date value_date account statement_id currency amount reference end_to_end_id description"),
	readModel("gl.bank_match_lines", gl.ProjectionBank, "sequence partition_id version line_number matched_as_of matched journal_id journal_sequence account"),
	readModel("gl.bank_matches", gl.ProjectionBank, "sequence partition_id version part line_number matched_as_of matched account statement_id statement_sequence"),
	readModel("gl.bank_statements", gl.ProjectionBank, "sequence partition_id version part first_date statement_date event_id account statement_id currency opening_balance closing_balance"),
	readModel("gl.calendar_periods", gl.ProjectionLedger, "sequence partition_id version year_start year_end period_start period_end fiscal_year period"),
	readModel("gl.close_steps", gl.ProjectionClosing, "sequence recorded_at partition_id version day event_id tenant_id legal_entity kind item counterparty actor_id data"),
	readModel("gl.exchange_rates", gl.ProjectionLedger, "sequence recorded_at partition_id version rate_date event_id from_currency to_currency rate_type rate actor_id reason"),
	readModel("gl.journal_lines", gl.ProjectionLedger, "sequence partition_id line_number effective_date rate_date side account amount currency functional_amount functional_currency rate description tax_code dimensions version"),
	readModel("gl.journal_reversals", gl.ProjectionLedger, "sequence partition_id journal_id reversed_by version"),
	readModel("gl.journals", gl.ProjectionLedger, "sequence recorded_at partition_id effective_date event_id source_event_id journal_id reverses_journal_id journal_number journal_type description document_date functional_currency "+
		"fiscal_year period source_module version intent_id actor_id approvers correlation_id"),
	readModel("gl.journal_payments", gl.ProjectionBank, "sequence partition_id version payment_id"),
	readModel("gl.ledgers", gl.ProjectionLedger, "sequence partition_id functional_currency version"),
	readModel("gl.line_totals", gl.ProjectionLedger, "block lines partition_id version effective_date account functional_currency debit credit"),
	readModel("gl.period_states", gl.ProjectionLedger, "sequence recorded_at partition_id version event_id intent_id module period state actor_id approvers reason"),

	{
		name: "keystore.data_subjects", target: "state = 'destroyed'",
		columns: []verdict{
			proves("partition_id subject_id class tenant_id state active_version", verify.KeyStoreMismatch, receiptsDiffer),
			isHarmless("key_ref created_at destroyed_at", "the receipt names the key and the time"),
		},
		deleted: proves("", verify.KeyStoreMismatch, receiptsDiffer), invented: proves("", verify.KeyStoreMismatch),
		edits: map[string]string{
			"partition_id": "1", "class": "class, subject_id = 'contact:C-9'",
			"state": "'active', active_version = 1, destroyed_at = NULL", "active_version": "1, state = 'active', destroyed_at = NULL",
		},
		invents: map[string]string{"class": "class", "key_ref": "gen_random_uuid()"},
	},
	{
		name: "keystore.data_subjects", target: "state = 'active'",
		columns: []verdict{
			proves("partition_id subject_id class tenant_id state active_version", verify.KeyStoreMismatch, verify.KeyUnusable),
			proves("key_ref", verify.KeyUnusable),
			isHarmless("created_at destroyed_at", "people read it"),
		},
		deleted: proves("", verify.KeyStoreMismatch), invented: proves("", verify.KeyStoreMismatch),
		edits:   map[string]string{"partition_id": "1", "state": "'destroyed', active_version = 0, destroyed_at = now()", "class": "(class + 1) % 3"},
		invents: map[string]string{"class": "class", "key_ref": "gen_random_uuid()"},
	},
	{
		name: "keystore.data_subject_keys",
		columns: []verdict{
			proves("partition_id subject_id class version tenant_id", verify.KeyStoreMismatch, verify.KeyUnusable),
			proves("kek_epoch", verify.KeyStoreMismatch),
			proves("wrapped fingerprint", verify.KeyUnusable),
			isHarmless("created_at", "people read it"),
		},
		deleted: proves("", verify.KeyStoreMismatch, verify.KeyUnusable), invented: proves("", verify.KeyStoreMismatch, verify.KeyUnusable),
		edits: map[string]string{"partition_id": "1", "class": "(class + 1) % 3", "fingerprint": "substr(sha256(fingerprint), 1, 16)"},
	},
	{
		name: "keystore.erasure_receipts",
		columns: []verdict{
			proves("number request_id tenant_id note", verify.ErasureMismatch, verify.KeyStoreMismatch, receiptsDiffer),
			proves("keys generation", verify.KeyStoreMismatch, receiptsDiffer),
			isHarmless("destroyed_at", "the signed note has the time"),
			isHarmless("exported", "a receipt is exported again, or is missing from the export folder, which is compared"),
		},
		deleted:  proves("", verify.ErasureMismatch, verify.KeyStoreMismatch, receiptsDiffer),
		invented: proves("", verify.KeyStoreMismatch, receiptsDiffer),
		edits:    map[string]string{"generation": "0"},
		invents:  map[string]string{"number": "number + 1", "request_id": "gen_random_uuid()", "exported": "false"},
	},
	{
		name: "keystore.generation",
		columns: []verdict{
			isHarmless("singleton", oneValue),
			proves("generation", verify.KeyStoreMismatch),
		},
		deleted:  isHarmless("", "no key is destroyed without it"),
		invented: isHarmless("", "there can be one row only"),
		edits:    map[string]string{"generation": "0"},
	},
	{
		name:    "keystore.legal_holds",
		columns: []verdict{proves("hold_id placed_at released_at until partition_id tenant_id subject_id reason placed_by released_by", verify.HoldMismatch)},
		deleted: proves("", verify.HoldMismatch), invented: proves("", verify.HoldMismatch),
		edits: map[string]string{"released_at": "now(), released_by = 'x'", "released_by": "'x', released_at = now()"},
	},
	harmlessTable("keystore.nodes", "node_id generation seen_at",
		"a certificate promises that no node decrypts from a minute after the destruction, when no cached key lives, whatever the nodes reported; what a node has evicted and learned is in its memory"),
	{
		name: "keystore.pii_deletion_approvals",
		columns: []verdict{
			proves("request_id revision requester_person approver_person scope stored_at", verify.ErasureMismatch), // stored_at: an earlier one, or one by less than clocks may differ, ends the approval sooner or minutes later
			isHarmless("approved_at", "the request's copy is bound"),
		},
		deleted: proves("", verify.ErasureMismatch), invented: proves("", verify.ErasureMismatch),
		edits:   map[string]string{"stored_at": "stored_at + interval '1 hour'"},
		invents: map[string]string{"request_id": "request_id"},
	},
	{
		name: "keystore.pii_deletion_log", target: "state = 'completed'",
		columns: []verdict{
			proves("request_id requested_at approved_at destroyed_at evicted_at completed_at generation receipt due_on revision all_entities tenant_id subject_id basis reason requester_person "+
				"approver_person ended_by end_reason state partitions scope preview classes results", verify.ErasureMismatch, verify.KeyStoreMismatch),
			proves("erased_classes", verify.KeyStoreMismatch),
			isHarmless("attempts last_error updated_at", isAttempt),
		},
		deleted: proves("", verify.ErasureMismatch, verify.KeyStoreMismatch), invented: proves("", verify.ErasureMismatch, verify.KeyStoreMismatch),
		edits: map[string]string{"state": "'verified'", "partitions": "partitions || 1", "erased_classes": "'{0}'"}, // classes: no list
	},
	{
		name: "keystore.pii_deletion_steps", target: "state = 'approved'",
		columns: []verdict{
			proves("request_id revision state person", verify.ErasureMismatch),
			isHarmless("done_at attempts", "people read it; the event has its own time"),
		},
		deleted: proves("", verify.ErasureMismatch), invented: proves("", verify.ErasureMismatch),
		edits:   map[string]string{"revision": "revision + 100"},
		invents: map[string]string{"request_id": "request_id", "revision": "revision + 100"},
	},
	{
		name: "keystore.subject_fences", target: "partition_id = (SELECT l.partition_id FROM backbone.legal_entities l WHERE l.code = '_ADMIN')",
		columns: []verdict{
			proves("partition_id subject_id class request_id lifted_at", verify.KeyStoreMismatch),
			isHarmless("fenced_at", "people read it"),
		},
		deleted:  proves("", verify.KeyStoreMismatch),
		invented: proves("", verify.KeyStoreMismatch),
		edits:    map[string]string{"partition_id": "1", "class": "class, subject_id = 'contact:C-9'", "lifted_at": "now()"},
	},
	{
		name: "keystore.tenant_keks",
		columns: []verdict{
			proves("tenant_id epoch kms_key_id state", verify.KeyEpochMismatch, verify.KeyStoreMismatch, verify.KeyUnusable),
			isHarmless("created_at activated_at drained_at deleting_at deleted_at", "people read it; the events have the times"),
		},
		deleted: proves("", verify.KeyEpochMismatch, verify.KeyStoreMismatch), invented: proves("", verify.KeyEpochMismatch),
		edits:   map[string]string{"state": "'draining'"},
		invents: map[string]string{"state": "'pending'"},
	},
	harmlessTable("keystore.tenant_secrets", "created_at secret_ref version kek_epoch tenant_id purpose wrapped fingerprint",
		"it decides nothing and opens no personal value. If the row is deleted, a node makes a new secret: repeated requests and approvals of plans from before are refused, receivers of webhooks get "+
			"signatures that they do not know, stored headers no longer open, and the index of persons and snapshots are built again from the log. One that does not open fails what needs it"),
}

func migrations(name string) table {
	return table{
		name: name, columns: []verdict{isHarmless("id version_id is_applied tstamp", isMigration)},
		deleted: isHarmless("", isMigration), invented: isHarmless("", isMigration),
	}
}

func migrationLock(name string) table {
	const why = "it keeps two migrations apart, and expires"
	return table{
		name: name, columns: []verdict{isHarmless("lock_id locked locked_at locked_by lease_expires_at updated_at", why)},
		deleted: isHarmless("", why), invented: isHarmless("", why),
	}
}
