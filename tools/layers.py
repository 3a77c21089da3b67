"""The import-linter contract `layers`: what each package may import, as the table in pyproject.toml says it.

import-linter's own layers have one order for all. Ours are a table: gateway may not import memory although
workers may, probe may import fleet and nothing else. Packages that are in the table and not in the tree are
passed over; one that is in the tree and not in the table is an error, so that nobody forgets it.
"""

from typing import TYPE_CHECKING, Any

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph


class LayersContract(Contract):
    """`allowed`: lines `package: packages...`; `only`: lines `library: packages...`, who may import it."""

    # Typed Any: the fields are descriptors of import-linter that hold plain values by the time they are read.
    root: Any = fields.StringField()
    allowed: Any = fields.ListField(subfield=fields.StringField())
    only: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: "ImportGraph", verbose: bool) -> ContractCheck:  # noqa: ARG002, FBT001
        allowed, only = _table(self.allowed), _table(self.only)
        faults = []
        for importer in sorted(graph.modules):
            if not importer.startswith(f"{self.root}."):
                continue
            package = importer.split(".")[1]
            if package not in allowed:
                faults.append(
                    f"{importer}: the package {package} is missing from the table in pyproject.toml"
                )
                continue
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if fault := self._fault(package, imported, allowed[package], only):
                    details = graph.get_import_details(importer=importer, imported=imported)
                    lines = ", ".join(str(detail["line_number"]) for detail in details)
                    faults.append(f"{importer}:{lines} imports {imported}: {fault}")
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def _fault(
        self, package: str, imported: str, allowed: frozenset[str], only: dict[str, frozenset[str]]
    ) -> str | None:
        top, *rest = imported.split(".")
        if top != self.root:
            users = only.get(top)
            return None if users is None or package in users else f"only {', '.join(sorted(users))} may"
        if not rest or rest[0] == package or rest[0] in allowed or "*" in allowed:
            return None
        return f"{package} may import {', '.join(sorted(allowed)) or 'nothing of ours'}"

    def render_broken_contract(self, check: ContractCheck) -> None:
        for fault in check.metadata["faults"]:
            output.print_error(fault, bold=False)


def _table(lines: Any) -> dict[str, frozenset[str]]:
    table = {}
    for line in lines:
        name, colon, others = line.partition(":")
        if not colon or name in table:
            raise ValueError(f"not `name: name ...`, or twice in the table: {line!r}")
        table[name] = frozenset(others.split())
    return table
