"""The parts of the grader, in the order in which a submission passes them.

intake (what was handed in), pairs (who shares it), placing (lost marks), running (the sandbox),
clean (nothing harmful is shown), book (nbgrader's gradebook), late (due dates), similar (what is
alike), reports (what is written). `tools/grading.py` calls them.
"""
