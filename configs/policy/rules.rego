# Helpers that the policies of the modules share.
package backbone.rules

# persons(actor) are the persons that an actor counts as when two decisions need two persons:
# a human as itself, an agent also as the one it acts for, a service only as the
# one it acts for.
persons(actor) := ({actor.id} | represented(actor)) - {""} if not service(actor)

persons(actor) := represented(actor) - {""} if service(actor)

# same_person(a, b) holds when both actors count as the same person. Actors are
# {"type", "id", "on_behalf_of"?}. A service that acts for no person is never the same
# person as another actor, and therefore must not approve either.
same_person(a, b) if count(persons(a) & persons(b)) > 0

service(actor) if actor.type in {"system", "external", "import"}

represented(actor) := {object.get(actor, "on_behalf_of", "")}

# within_limit(amount, limit) compares exactly; a limit of null is none.
within_limit(_, limit) if limit == null

within_limit(amount, limit) if {
	is_number(amount)
	is_number(limit)
	amount <= limit
}
