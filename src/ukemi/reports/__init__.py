"""Reports: what was found as a table, a page, JSON and JUnit."""

from ukemi.measures.examples import Broken, Sweep, Terrain
from ukemi.reports.adversarial import AttackReport, attack_notes, examine_attack, write_attack
from ukemi.reports.attacks import AttackResult, attack_row, attack_table, attacks_table
from ukemi.reports.choosing import choice_table
from ukemi.reports.command import made_by
from ukemi.reports.comparison import comparison_answer, comparison_tables, comparison_texts
from ukemi.reports.comparison_page import write_comparison
from ukemi.reports.defences import DefenceReport, defence_table, write_defences
from ukemi.reports.evaluation import Evaluation, examine
from ukemi.reports.experiment_answers import experiment_answer
from ukemi.reports.experiments import experiment_tables, size_said, write_experiment
from ukemi.reports.generation import GenerationReport, generation_table, write_generation
from ukemi.reports.junit import Check, checks_of, limits_said, parse_fail_under, write_junit
from ukemi.reports.page import write_page, write_training_page
from ukemi.reports.repair import Compared, write_repair
from ukemi.reports.search import search_summary, search_table, write_search
from ukemi.reports.slices import slices_summary, slices_table, write_slices_report
from ukemi.reports.summary import evaluation_notes, summary, write_json
from ukemi.reports.table import table
from ukemi.reports.transfer import Transfer, transfer_table
from ukemi.reports.uncertainty import UncertaintyReport, auroc_table, pattern_table, write_uncertainty

__all__ = [
    "AttackReport",
    "AttackResult",
    "Broken",
    "Check",
    "Compared",
    "DefenceReport",
    "Evaluation",
    "GenerationReport",
    "Sweep",
    "Terrain",
    "Transfer",
    "UncertaintyReport",
    "attack_notes",
    "attack_row",
    "attack_table",
    "attacks_table",
    "auroc_table",
    "checks_of",
    "choice_table",
    "comparison_answer",
    "comparison_tables",
    "comparison_texts",
    "defence_table",
    "evaluation_notes",
    "examine",
    "examine_attack",
    "experiment_answer",
    "experiment_tables",
    "generation_table",
    "limits_said",
    "made_by",
    "parse_fail_under",
    "pattern_table",
    "search_summary",
    "search_table",
    "size_said",
    "slices_summary",
    "slices_table",
    "summary",
    "table",
    "transfer_table",
    "write_attack",
    "write_comparison",
    "write_defences",
    "write_experiment",
    "write_generation",
    "write_json",
    "write_junit",
    "write_page",
    "write_repair",
    "write_search",
    "write_slices_report",
    "write_training_page",
    "write_uncertainty",
]
